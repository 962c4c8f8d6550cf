"""Several simulated servers in one process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from controlplane.errors import SettingsError
from controlplane.sim.engine import Fault, Profile
from controlplane.sim.server import SimServer


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """What `trimtab sim-server` runs. Lists shorter than `ports` repeat from their start."""

    ports: tuple[int, ...] = (9001,)
    """One server each; 0 picks a free port."""
    address: str = "127.0.0.1"
    speeds: tuple[float, ...] = (1.0,)
    versions: tuple[str, ...] = ("v1",)
    model: str = "sim"
    seed: int = 0
    profile: Profile = field(default_factory=Profile)
    """What all servers share; `speeds` overrides its speed."""

    def __post_init__(self) -> None:
        """Check the lists.

        Raises:
            SettingsError: if one is empty, or a figure is out of range.
        """
        for name in ("ports", "speeds", "versions"):
            if not getattr(self, name):
                raise SettingsError(name, "needs at least one value")
        if any(not 0 <= port <= 65_535 for port in self.ports):  # noqa: PLR2004 - the range of a TCP port
            raise SettingsError("ports", "must be 0 to 65535")
        if any(not 0 < speed <= 1_000 for speed in self.speeds):  # noqa: PLR2004 - a sane bound
            raise SettingsError("speeds", "must be above 0 and at most 1000")


def consecutive_ports(first: int, count: int) -> tuple[int, ...]:
    """List `count` ports from `first` on; all free ones if `first` is 0.

    Raises:
        SettingsError: if there are none, or they run past the last port.
    """
    if count < 1:
        raise SettingsError("count", "must be at least 1")
    if first + count - 1 > 65_535:  # noqa: PLR2004 - the last TCP port
        raise SettingsError("port", f"{count} ports from {first} run past 65535")
    return tuple(first + index if first else 0 for index in range(count))


class SimFleet:
    """Starts and stops servers together, or one at a time; an async context manager."""

    def __init__(self, options: SimOptions) -> None:
        """Make one server for each port."""
        self.servers = tuple(
            SimServer(
                profile=replace(options.profile, speed=options.speeds[index % len(options.speeds)]),
                address=options.address,
                port=port,
                version=options.versions[index % len(options.versions)],
                model=options.model,
                seed=options.seed + index,
            )
            for index, port in enumerate(options.ports)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Endpoint ids, in the order of the ports; final once started."""
        return tuple(server.name for server in self.servers)

    def server(self, name: str) -> SimServer:
        """Find a server by its endpoint id, to stop it, start it again, or change its fault.

        Raises:
            KeyError: if there is none.
        """
        for server in self.servers:
            if server.name == name:
                return server
        raise KeyError(name)

    def set_fault(self, name: str, fault: Fault) -> None:
        """Change what is wrong with one server.

        Raises:
            KeyError: if there is none of that name.
        """
        self.server(name).set_fault(fault)

    async def start(self) -> None:
        """Listen on all ports.

        Raises:
            OSError: if one is taken; none is left open then.
        """
        try:
            for server in self.servers:
                await server.start()
        except OSError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all servers."""
        async with asyncio.TaskGroup() as group:
            for server in self.servers:
                group.create_task(server.stop())

    async def __aenter__(self) -> Self:
        """Start all servers.

        Raises:
            OSError: if a port is taken.
        """
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all servers."""
        await self.stop()
