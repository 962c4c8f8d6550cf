"""The driver of a blocking query: asks, paces, retries, and yields changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from controlplane.errors import SourceError
from controlplane.sources.blocking import Answer, BlockingMachine, Change, Debounce, Pace
from controlplane.sources.fuse import backoff_seconds

T = TypeVar("T")

JITTER_RATIO = 0.2


class Outcomes(Protocol):
    """Who wants to know how tries went; a `Fuse` is one."""

    def record_success(self) -> None:
        """Say that an answer came."""
        ...

    def record_failure(self, error: str) -> None:
        """Say that no usable answer came."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a failed query is repeated, and where time and chance come from.

    `clock` gives monotonic seconds, `random` a uniform draw in [0, 1).
    """

    minimum_seconds: float
    maximum_seconds: float
    clock: Callable[[], float]
    random: Callable[[], float]


class BlockingWatch(Generic[T]):
    """One blocking query, repeated for ever."""

    def __init__(
        self, *, read: Callable[[int], Awaitable[Answer[T]]], outcomes: Outcomes, retry: Retry
    ) -> None:
        """Watch what `read` reads.

        `read` takes an index (0: answer at once), has its own deadline, and raises `SourceError`.
        """
        self._read = read
        self._outcomes = outcomes
        self._retry = retry

    async def changes(self) -> AsyncGenerator[Change[T], None]:
        """Yield the content once it is known, then each change of it.

        Errors of the peer are retried with backoff and told to `outcomes`; nothing is yielded then.
        The query under way is the generator's own and is cancelled when the generator closes. No
        `TaskGroup` here: one that spans a `yield` would cancel the consumer instead (PEP 789).
        """
        clock = self._retry.clock
        machine: BlockingMachine[T] = BlockingMachine()
        debounce: Debounce[T] = Debounce()
        pace = Pace(updated_seconds=clock())
        query: asyncio.Task[Answer[T]] | None = None
        try:
            while True:
                if query is None:
                    pace, wait = pace.take(clock(), machine.unchanged)
                    query = asyncio.create_task(self._ask(machine, wait))
                due = debounce.due_seconds
                done, _ = await asyncio.wait({query}, timeout=None if due is None else due - clock())
                if done:
                    machine, change = self._settle(machine, query)
                    query = None
                    if change is not None:
                        debounce = debounce.on_change(clock(), change)
                due = debounce.due_seconds
                if due is not None and due <= clock():
                    debounce, ready = debounce.deliver()
                    if ready is not None:
                        yield ready
        finally:
            if query is not None:
                query.cancel()
                await asyncio.wait({query})

    async def _ask(self, machine: BlockingMachine[T], wait_seconds: float) -> Answer[T]:
        if machine.failures:
            backoff = backoff_seconds(
                machine.failures - 1,
                minimum_seconds=self._retry.minimum_seconds,
                maximum_seconds=self._retry.maximum_seconds,
                jitter_ratio=JITTER_RATIO,
                draw=self._retry.random(),
            )
            wait_seconds = max(wait_seconds, backoff)
        if wait_seconds > 0:
            await asyncio.sleep(wait_seconds)
        return await self._read(machine.request_index)

    def _settle(
        self, machine: BlockingMachine[T], query: asyncio.Task[Answer[T]]
    ) -> tuple[BlockingMachine[T], Change[T] | None]:
        try:
            answer = query.result()
        except SourceError as error:
            self._outcomes.record_failure(error.reason)
            return machine.on_failure(), None
        self._outcomes.record_success()
        return machine.on_answer(answer)
