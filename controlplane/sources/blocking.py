"""Consul's blocking queries as a pure state machine, with its pace and its debounce.

The rules are Consul's own (developer.hashicorp.com/consul/api-docs/features/blocking): an index is a
hint to wait on and no proof of change; it may go backwards, and is then to be forgotten; it must be
at least 1, as 0 does not block; and whoever asks must bound his own rate, since an index that runs
ahead makes every query return at once.

Nothing here reads a clock or a socket: `BlockingWatch` in `blocking_watch` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")

BURST = 2.0
"""Queries that may follow each other at once."""

CHANGING_SECONDS = 1.0
"""Time between queries after the burst, while content changes."""

IDLE_SECONDS = 4.0
"""Longest time between queries while the index moves and content doesn't."""

DEBOUNCE_QUIET_SECONDS = 0.1
DEBOUNCE_LIMIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """One answer of Consul.

    `identity` is what counts as content: two answers with equal identities say the same. `is_empty`
    says that nothing at all was there.
    """

    index: int
    content: T
    identity: object
    is_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """Content to be delivered. `is_reset`: the store started over, so absence proves nothing."""

    content: T
    identity: object
    is_reset: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingMachine(Generic[T]):
    """Where one blocking query stands.

    `request_index` goes into the next query; 0 stands for none. `seen_index` is the highest of this
    store's life so far. `unchanged` counts answers in a row with nothing new, `failures` tries in a
    row without an answer.
    """

    request_index: int = 0
    seen_index: int = 0
    last: Answer[T] | None = None
    is_resetting: bool = False
    failures: int = 0
    unchanged: int = 0

    def on_answer(self, answer: Answer[T]) -> tuple[BlockingMachine[T], Change[T] | None]:
        """Take an answer in; gives the change to deliver, or `None` if nothing changed.

        An index that went backwards under a blocking query is not believed: the query is repeated
        without an index, and what that says is marked as a reset.
        """
        index = max(1, answer.index)
        if self.request_index > index:
            restarted = replace(
                self,
                request_index=0,
                seen_index=index,
                is_resetting=True,
                failures=0,
                unchanged=self.unchanged + 1,
            )
            return restarted, None
        is_same = self.last is not None and self.last.identity == answer.identity
        after = replace(
            self,
            request_index=index,
            seen_index=index,
            last=answer,
            is_resetting=False,
            failures=0,
            unchanged=self.unchanged + 1 if is_same else 0,
        )
        if is_same:
            return after, None
        is_reset = self.is_resetting or index < self.seen_index or self._is_wiped(answer)
        return after, Change(content=answer.content, identity=answer.identity, is_reset=is_reset)

    def on_failure(self) -> BlockingMachine[T]:
        """Take a failed try in: the next query goes without an index."""
        return replace(self, request_index=0, failures=self.failures + 1)

    def _is_wiped(self, answer: Answer[T]) -> bool:
        """Tell whether everything went away while there was no contact.

        A restarted, empty store may have an index above the old one, so that the index alone cannot
        tell it from a store in which somebody deleted everything.
        """
        return self.failures > 0 and answer.is_empty and self.last is not None and not self.last.is_empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A token bucket: two queries at once, then one a second, fewer while nothing changes.

    A token that is not there yet is paid for in time (`updated_seconds` lies ahead then), so that a
    faster rate afterwards cannot turn the wait into new tokens.
    """

    updated_seconds: float
    tokens: float = BURST

    def take(self, now: float, unchanged: int) -> tuple[Pace, float]:
        """Take one token; gives how long to wait before using it, in seconds.

        `unchanged` is how many answers in a row said nothing new.
        """
        interval = min(IDLE_SECONDS, CHANGING_SECONDS * 2.0 ** min(max(0, unchanged - 2), 16))
        refilled = self.tokens + max(0.0, now - self.updated_seconds) / interval
        tokens = min(BURST, refilled) - 1.0
        free_seconds = max(now, self.updated_seconds) + max(0.0, -tokens * interval)
        return Pace(updated_seconds=free_seconds, tokens=max(0.0, tokens)), free_seconds - now


@dataclass(frozen=True, slots=True, kw_only=True)
class Debounce(Generic[T]):
    """Changes that wait for a quiet moment; only the newest is delivered.

    Several keys are often edited one after the other; taking them together saves a decision on half
    of an edit.
    """

    waiting: Change[T] | None = None
    delivered_identity: object = None
    first_seconds: float = 0.0
    last_seconds: float = 0.0
    is_started: bool = False

    @property
    def due_seconds(self) -> float | None:
        """When to deliver, on the clock of `on_change`; `None` if nothing waits."""
        if self.waiting is None:
            return None
        if not self.is_started:
            return self.first_seconds  # the first content is awaited: nothing to put together
        return min(self.last_seconds + DEBOUNCE_QUIET_SECONDS, self.first_seconds + DEBOUNCE_LIMIT_SECONDS)

    def on_change(self, now: float, change: Change[T]) -> Debounce[T]:
        """Put a change in place of one that still waits. A reset stays a reset."""
        if self.waiting is None:
            return replace(self, waiting=change, first_seconds=now, last_seconds=now)
        merged = replace(change, is_reset=change.is_reset or self.waiting.is_reset)
        return replace(self, waiting=merged, last_seconds=now)

    def deliver(self) -> tuple[Debounce[T], Change[T] | None]:
        """Take the waiting change out; `None` if content has come back to what was delivered last."""
        change = self.waiting
        if change is None:
            return self, None
        after = replace(self, waiting=None, delivered_identity=change.identity, is_started=True)
        is_back = self.is_started and change.identity == self.delivered_identity
        return after, None if is_back else change
