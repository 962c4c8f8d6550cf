"""A real admin server on a thread of its own, for tests of programs that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from controlplane.config import AdminSettings
from controlplane.ops.admin import AdminServer
from tests.support.state_views import FixedState


@dataclass(frozen=True, slots=True)
class RunningAdmin:
    """Where it listens, and the state it shows."""

    address: str
    state: FixedState


@contextmanager
def running_admin(state: FixedState, *, port: int = 0) -> Iterator[RunningAdmin]:
    """Serve `state` until the block ends."""
    started = threading.Event()
    found: list[int] = []
    loops: list[asyncio.AbstractEventLoop] = []
    stop = asyncio.Event()

    async def run() -> None:
        server = AdminServer(settings=AdminSettings(port=port), state=state, registry=CollectorRegistry())
        try:
            found.append(await server.start())
            loops.append(asyncio.get_running_loop())
        finally:
            started.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield RunningAdmin(f"http://127.0.0.1:{found[0]}", state)
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive()
