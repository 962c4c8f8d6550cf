"""The state of a running play: what Envoy shows, what the load measured, what was claimed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiohttp

from controlplane.demo.envoy import EnvoyAdmin, HostView
from controlplane.demo.moved import MovedKeys
from controlplane.demo.screen import Frame, Row, Screen
from controlplane.demo.stage import CANARY_SPEEDS, SERVICE, STABLE_SPEEDS, Stage
from controlplane.demo.summary import Summary
from controlplane.sim.load import LoadGenerator, LoadReport

_POLL_SECONDS = 0.25
_RECENT_SECONDS = 4.0
_TIMEOUT = aiohttp.ClientTimeout(total=5)


class Play:
    """Everything the acts share."""

    def __init__(
        self,
        *,
        stage: Stage,
        envoy: EnvoyAdmin,
        load: LoadGenerator,
        screen: Screen,
        session: aiohttp.ClientSession,
    ) -> None:
        self.stage = stage
        self.envoy = envoy
        self.summary = Summary()
        self.notes: dict[str, str] = {}
        """Host → a word shown beside it."""
        self.canary_percent: float | None = None
        """The canary's share in Envoy's routes; `None` without a split."""
        self.moved = MovedKeys()
        self._load = load
        self._screen = screen
        self._session = session
        self._hosts: dict[str, HostView] = {}
        self._act = "start"
        self._started_at = time.perf_counter()
        self._act_began_at = self.now()
        ports, speeds = stage.ports.servers, STABLE_SPEEDS + CANARY_SPEEDS
        self._speeds = {f"127.0.0.1:{port}": speed for port, speed in zip(ports, speeds, strict=True)}

    def now(self) -> float:
        """Seconds since the play began."""
        return time.perf_counter() - self._started_at

    def begin(self, act: str) -> None:
        """Begin an act."""
        self._act = act
        self._act_began_at = self.now()
        self._screen.say(f"── {act} ({self.now():.0f} s)")

    def claim(self, name: str, *, is_met: bool, measured: str) -> None:
        """Note and show one result."""
        check = self.summary.check(name, is_met=is_met, measured=measured)
        self._screen.say(f"{'✓' if check.is_met else '✗'} {check.name}: {check.measured}")

    def load_since_act(self, *, skip_seconds: float) -> LoadReport:
        """Give what the load measured since the act began, without its first seconds."""
        return self.load_since(self._act_began_at + skip_seconds)

    def load_since(self, since: float) -> LoadReport:
        """Give what the load measured in requests that ended since a time of the play."""
        return self._load.report(since=self._started_at + since)

    def share_begun_since(self, since: float, hosts: list[str]) -> float:
        """Give the share of `hosts` in the answers to requests that began since a time of the play."""
        found = [a.server for a in self._load.answers if a.began_at >= self._started_at + since]
        return sum(server in hosts for server in found) / len(found) if found else 0.0

    def host_with(self, *, speed: float) -> str:
        """Find the first stable host of a GPU class."""
        return next(host for host, found in self._speeds.items() if found == speed)

    def hosts_of_version(self, version: str) -> list[str]:
        """List the hosts of a version."""
        ports = self.stage.ports.canary if version == "v2" else self.stage.ports.stable
        return [f"127.0.0.1:{port}" for port in ports]

    def weight_share(self, host: str) -> float:
        """Give a host's share of its cluster's weight, as Envoy has it; 0 if Envoy lacks the host."""
        total = sum(view.weight for view in self._hosts.values())
        return self._hosts[host].weight / total if host in self._hosts else 0.0

    def share_of(self, *, speed: float) -> float:
        """Average share of the stable hosts of a GPU class."""
        hosts = [h for h in self.hosts_of_version("v1") if self._speeds[h] == speed]
        return sum(self.weight_share(host) for host in hosts) / len(hosts)

    async def set_fault(self, host: str, *, slow_factor: float) -> None:
        """Make a model server slower (1: healthy)."""
        url = f"http://{host}/sim/fault"
        async with self._session.post(url, json={"slow_factor": slow_factor}, timeout=_TIMEOUT) as answer:
            answer.raise_for_status()

    async def watch_for(self, seconds: float) -> None:
        """Let the play run on."""
        await self.wait_until(lambda: False, deadline_seconds=seconds)

    async def wait_until(self, is_met: Callable[[], bool], *, deadline_seconds: float) -> float | None:
        """Watch Envoy until a condition holds; give the seconds it took, `None` if it never did."""
        began_at = self.now()
        while self.now() - began_at < deadline_seconds:
            await self._look()
            if is_met():
                return self.now() - began_at
            await asyncio.sleep(_POLL_SECONDS)
        return None

    async def _look(self) -> None:
        stable, canary = await asyncio.gather(
            self.envoy.hosts(SERVICE), self.envoy.hosts(f"{SERVICE}.canary")
        )
        self.canary_percent = await self.envoy.canary_percent(SERVICE)
        self.moved.see({host: view.weight for host, view in stable.items()})
        self._hosts = stable | canary
        recent = self.load_since(self.now() - _RECENT_SECONDS)
        rows = [
            Row(
                name=host.partition(":")[2],
                version="v2" if host in self.hosts_of_version("v2") else "v1",
                speed=speed,
                weight=self._hosts[host].weight if host in self._hosts else 0,
                weight_share=self.weight_share(host),
                request_share=recent.share(host),
                note=self.notes.get(host, ""),
            )
            for host, speed in self._speeds.items()
        ]
        figures = {
            "p50": f"{recent.p50_seconds:.2f} s",
            "p99": f"{recent.p99_seconds:.2f} s",
            "cache hits": f"{recent.cache_hit_ratio:.0%}",
            "keys moved": f"{self.moved.total_ratio:.0%}",
        }
        if self.canary_percent is not None:
            figures["canary"] = f"{self.canary_percent:.0f} %"
        self._screen.show(Frame(act=self._act, seconds=self.now(), rows=rows, figures=figures))
