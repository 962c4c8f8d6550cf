"""Processes that a test may end and start again, and where they listen."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from tests.support.process import Server, running

PATIENCE_SECONDS = 30.0
_TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(slots=True)
class Part:
    """A process that a test may end and start again."""

    command: Sequence[str]
    is_ready: Callable[[], Awaitable[bool]]
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _server: Server | None = None

    @property
    def server(self) -> Server:
        """The process that was started last."""
        assert self._server is not None
        return self._server

    @property
    def output(self) -> str:
        """The end of what it printed, this time."""
        return self.server.output.decode(errors="replace")

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        self._server = await self._stack.enter_async_context(running(self.command, is_ready=self.is_ready))

    async def kill(self) -> None:
        """End it as a crash would; once more does no harm."""
        await self._stack.aclose()
        self._stack = contextlib.AsyncExitStack()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it in order; gives its exit code."""
        self.signal(number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.server.process.wait()
        await self.kill()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP."""
        self.server.process.send_signal(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where what a test cannot bind to port 0 listens."""

    xds: int
    admin: int
    listener: int
    envoy_admin: int


def answers(session: aiohttp.ClientSession, url: str) -> Callable[[], Awaitable[bool]]:
    """Make a readiness check: the URL answers 200."""

    async def does_answer() -> bool:
        try:
            async with session.get(url, timeout=_TIMEOUT) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    return does_answer


def pick_ports() -> Ports:
    """Find free ports; all are held open until the last is known, so that none comes twice."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        xds, admin, listener, envoy_admin = (int(each.getsockname()[1]) for each in sockets)
    return Ports(xds=xds, admin=admin, listener=listener, envoy_admin=envoy_admin)
