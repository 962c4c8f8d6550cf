"""What `trimtab sim-server` does, once its flags are read."""

from __future__ import annotations

import asyncio
import signal

import structlog

from controlplane.sim.fleet import SimFleet, SimOptions


async def serve(options: SimOptions, *, stop: asyncio.Event) -> None:
    """Run the servers until `stop` is set.

    Raises:
        OSError: if a port is taken.
    """
    log = structlog.get_logger("trimtab.sim")
    async with SimFleet(options) as fleet:
        for server in fleet.servers:
            profile = server.engine.profile
            log.info("sim_listening", endpoint=server.name, speed=profile.speed, version=server.version)
        await stop.wait()
    log.info("sim_stopped")


def run(options: SimOptions) -> None:
    """Run the servers until SIGINT or SIGTERM.

    Raises:
        OSError: if a port is taken.
    """
    asyncio.run(_run(options))


async def _run(options: SimOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(options, stop=stop)
