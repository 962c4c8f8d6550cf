"""Session-keyed load: conversations that grow turn by turn, at times that do not wait for answers.

Open loop: arrivals follow a seeded Poisson process whatever the answers do, as users would, so a slow
server shows as latency and not as less load. A session has one request under way at a time; an
arrival goes to a session that is free, or begins a new one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import numpy as np

from controlplane.sim.cache import CHARACTERS_PER_TOKEN
from controlplane.sim.report import Answer, LoadReport, summarise
from controlplane.sim.stream import Transcript, read_stream

__all__ = ["Answer", "LoadGenerator", "LoadOptions", "LoadReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What kind of load."""

    url: str
    """Where the requests go: ``http://host:port``, without a path."""
    requests_per_second: float = 30.0
    sessions: int = 120
    """Conversations that take turns."""
    max_turns: int = 6
    """A conversation ends after so many, and another begins in its place."""
    system_tokens: int = 0
    """Length of a system prompt that all conversations share."""
    prompt_tokens: int = 200
    """Of each turn; the conversation so far comes on top."""
    max_tokens: tuple[int, int] = (8, 24)
    """Fewest and most tokens of an answer."""
    deadline_seconds: float = 60.0
    """Of a whole request."""
    max_in_flight: int = 500
    """Arrivals above this are dropped, as errors: the load must not take the machine down."""
    max_records: int = 200_000
    """Answers remembered; the oldest are forgotten."""
    session_header: str = "x-session-id"
    host: str = ""
    """`Host` header; empty: the address's own."""
    model: str = "sim"
    seed: int = 0


@dataclass(slots=True)
class _Session:
    name: str
    messages: list[dict[str, str]] = field(default_factory=list)
    turn: int = 0


class LoadGenerator:
    """Drives one address and remembers every answer."""

    def __init__(self, options: LoadOptions, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """Make a load that has not begun. All its times are of `clock`, in seconds."""
        self.answers: deque[Answer] = deque(maxlen=options.max_records)
        """Oldest first, in the order in which they ended."""
        self._options = options
        self._clock = clock
        self._random = np.random.default_rng(options.seed)
        self._born = 0
        self._free = [self._open() for _ in range(options.sessions)]
        self._in_flight = 0

    async def run(self, *, seconds: float | None = None, stop: asyncio.Event | None = None) -> None:
        """Send load for this long, or until `stop` is set; then wait for what is under way.

        Cancelling breaks off what is under way; it is not remembered then.
        """
        stop = stop or asyncio.Event()
        ends_at = math.inf if seconds is None else self._clock() + seconds
        timeout = aiohttp.ClientTimeout(total=self._options.deadline_seconds)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as client,
            asyncio.TaskGroup() as group,
        ):
            next_at = self._clock()
            while True:
                next_at += float(self._random.exponential(1.0 / self._options.requests_per_second))
                await self._wait(min(next_at, ends_at), stop)
                if stop.is_set() or next_at >= ends_at:
                    return
                self._arrive(client, group)

    def window(self, since: float, until: float) -> tuple[Answer, ...]:
        """Give the answers that ended in ``[since, until)``, oldest first."""
        return tuple(answer for answer in self.answers if since <= answer.ended_at < until)

    def report(
        self,
        *,
        since: float = -math.inf,
        until: float = math.inf,
        slice_seconds: float | None = None,
    ) -> LoadReport:
        """Sum up the requests that ended in ``[since, until)``."""
        return summarise(tuple(self.answers), since=since, until=until, slice_seconds=slice_seconds)

    async def _wait(self, until: float, stop: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - self._clock()) if math.isfinite(until) else None):
                await stop.wait()
        except TimeoutError:
            return

    def _arrive(self, client: aiohttp.ClientSession, group: asyncio.TaskGroup) -> None:
        if self._in_flight >= self._options.max_in_flight:
            now = self._clock()
            self.answers.append(
                Answer(
                    session="",
                    turn=0,
                    began_at=now,
                    first_token_at=None,
                    ended_at=now,
                    status=0,
                    error="dropped",
                ),
            )
            return
        session = self._take()
        self._in_flight += 1
        # Drawn here, in the order of arrivals: the load must not depend on the order of answers.
        prompt, max_tokens = self._prompt(self._options.prompt_tokens), self._answer_tokens()
        group.create_task(self._converse(client, session, prompt, max_tokens))

    def _take(self) -> _Session:
        """Choose a free session; a new one if all are waiting for answers."""
        if not self._free:
            return self._open()
        index = int(self._random.integers(len(self._free)))
        session, self._free[index] = self._free[index], self._free[-1]
        self._free.pop()
        return self._open() if session.turn >= self._options.max_turns else session

    def _open(self) -> _Session:
        self._born += 1
        session = _Session(f"session-{self._options.seed}-{self._born}")
        if self._options.system_tokens:
            text = "s" * (self._options.system_tokens * CHARACTERS_PER_TOKEN)
            session.messages.append({"role": "system", "content": text})
        return session

    def _prompt(self, tokens: int) -> str:
        return self._random.bytes(2 * tokens).hex()[: tokens * CHARACTERS_PER_TOKEN]

    def _answer_tokens(self) -> int:
        fewest, most = self._options.max_tokens
        return int(self._random.integers(fewest, most + 1))

    async def _converse(
        self,
        client: aiohttp.ClientSession,
        session: _Session,
        prompt: str,
        max_tokens: int,
    ) -> None:
        """Ask one question, and go on from its answer next time; from the question alone if it failed."""
        messages = [*session.messages, {"role": "user", "content": prompt}]
        try:
            answer, transcript = await self._ask(client, session, messages, max_tokens)
        finally:
            self._in_flight -= 1
            if len(self._free) < self._options.sessions:
                self._free.append(session)
        self.answers.append(answer)
        if answer.is_good:
            session.turn += 1
            session.messages = [*messages, {"role": "assistant", "content": transcript.text}]

    async def _ask(
        self,
        client: aiohttp.ClientSession,
        session: _Session,
        messages: list[dict[str, str]],
        max_tokens: int,
    ) -> tuple[Answer, Transcript]:
        transcript = Transcript()
        answer = Answer(
            session=session.name,
            turn=session.turn,
            began_at=self._clock(),
            first_token_at=None,
            ended_at=0.0,
            status=0,
        )
        error = ""
        try:
            async with client.post(
                f"{self._options.url}/v1/chat/completions",
                json=self._body(messages, max_tokens),
                headers=self._headers(session),
            ) as response:
                answer = _with_headers(answer, response)
                error = await read_stream(response, transcript, clock=self._clock)
        except TimeoutError:
            error = "timeout"
        except aiohttp.ClientError:
            error = "truncated" if transcript.first_token_at is not None else "connection"
        ended = replace(
            answer,
            ended_at=self._clock(),
            first_token_at=transcript.first_token_at,
            error=error,
        )
        return ended, transcript

    def _body(self, messages: list[dict[str, str]], max_tokens: int) -> dict[str, Any]:
        return {
            "model": self._options.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
        }

    def _headers(self, session: _Session) -> dict[str, str]:
        headers = {self._options.session_header: session.name}
        if self._options.host:
            headers["host"] = self._options.host
        return headers


def _with_headers(answer: Answer, response: aiohttp.ClientResponse) -> Answer:
    try:
        cache_hit_ratio = float(response.headers.get("x-cache-hit", "0"))
    except ValueError:
        cache_hit_ratio = 0.0
    return replace(
        answer,
        status=response.status,
        server=response.headers.get("x-served-by", ""),
        version=response.headers.get("x-version", ""),
        cache_hit_ratio=cache_hit_ratio,
    )
