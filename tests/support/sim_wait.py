"""Ports for simulated servers, and waiting until one gets somewhere."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

DEADLINE_SECONDS = 10.0


async def eventually(is_met: Callable[[], bool]) -> None:
    """Return once the condition holds; fail at a deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not is_met():  # noqa: ASYNC110 - the engine has no event for it
            await asyncio.sleep(0.005)


def unused_port() -> int:
    """Find a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
