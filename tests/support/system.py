"""A whole real system: model servers, Consul, Prometheus, `trimtab serve` and Envoy, on free ports.

Only the model servers run in this process (a test sets their faults directly); all else are processes
that a test may kill and start again on the same ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp

from controlplane.demo.envoy import EnvoyAdmin
from controlplane.sim.engine import Profile
from controlplane.sim.fleet import SimFleet, SimOptions
from controlplane.sim.load import LoadGenerator, LoadOptions
from controlplane.store import framing
from controlplane.xds.server.messages import Variant
from tests.support.consul_server import ConsulServer, consul_server
from tests.support.process import Server, eventually, find_tool, running
from tests.support.prometheus_server import PrometheusServer, Target, prometheus_server
from tests.support.xds_envoy import bootstrap

SERVICE = "chat"
PREFIX = "trimtab/v1"
PATIENCE_SECONDS = 30.0
_TIMEOUT = aiohttp.ClientTimeout(total=5)

Tables = Mapping[str, Mapping[str, Any]]


def strategy_document(version: str = "1.0.0", *, law: str = "equal", **changes: Any) -> dict[str, Any]:
    """Write a strategy with the real guards, their times scaled to a test's; `changes` replace parts."""
    document: dict[str, Any] = {
        "schema": 1,
        "version": version,
        "law": law,
        "parameters": {"max_running": 8, "min_tokens": 50} if law == "capacity" else {},
        "signals": {"engine": "vllm", "window_seconds": 4, "stale_after_seconds": 8},
        "guards": {
            "interval_seconds": 0.5,
            "tau_down_seconds": 1,
            "tau_up_seconds": 1,
            "step_down_ratio": 0.5,
            "step_up_ratio": 0.5,
            "hysteresis_ratio": 0.01,
            "hysteresis_endpoint_ratio": 0.1,
            "dead_band_ratio": 0.03,
            "slow_start_seconds": 0,
            "min_samples": 5,
            "hold_seconds": 30,
        },
        "slo": {"ttft_p90_seconds": 1.0},
        "hash_policy": [{"kind": "header", "name": "x-session-id"}],
        "routing": {"domains": ["*"]},
    }
    return document | changes


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemOptions:
    """Which parts there are, and how they are set. Consul and Prometheus run only if they are asked for."""

    documents: Literal["consul", "directory"] = "consul"
    topology: Literal["consul", "file"] = "consul"
    signals: Literal["prometheus", "scrape"] = "prometheus"
    variant: Variant = Variant.DELTA
    speeds: tuple[float, ...] = (0.5, 0.5, 0.5, 0.5)
    """One model server each."""
    versions: tuple[str, ...] = ("v1",)
    """Of the servers; repeated from the start if fewer."""
    profile: Profile = field(default_factory=Profile)
    strategy: Mapping[str, Any] | None = field(default_factory=strategy_document)
    """In force for `SERVICE` before Trimtab starts; `None`: none."""
    settings: Tables = field(default_factory=dict)
    """Settings of Trimtab by table; they win over the system's own."""
    is_envoy_started: bool = True
    is_trimtab_started: bool = True


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


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """All parts of a running system. `consul` and `prometheus` raise if there are none."""

    options: SystemOptions
    folder: Path
    ports: Ports
    fleet: SimFleet
    trimtab: Part
    envoy: Part
    envoy_admin: EnvoyAdmin
    session: aiohttp.ClientSession
    consul_or_none: ConsulServer | None
    prometheus_or_none: PrometheusServer | None

    @property
    def consul(self) -> ConsulServer:
        """The Consul agent."""
        assert self.consul_or_none is not None
        return self.consul_or_none

    @property
    def prometheus(self) -> PrometheusServer:
        """The Prometheus server."""
        assert self.prometheus_or_none is not None
        return self.prometheus_or_none

    @property
    def config(self) -> Path:
        """Trimtab's settings file."""
        return self.folder / "trimtab.toml"

    @property
    def state(self) -> Path:
        """Trimtab's state directory."""
        return self.folder / "state"

    @property
    def envoy_url(self) -> str:
        """Where requests go."""
        return f"http://127.0.0.1:{self.ports.listener}"

    @property
    def admin_url(self) -> str:
        """Trimtab's admin API."""
        return f"http://127.0.0.1:{self.ports.admin}"

    @property
    def names(self) -> tuple[str, ...]:
        """Endpoint ids of the model servers."""
        return self.fleet.names

    # What people do.

    async def write(self, name: str, body: Mapping[str, Any] | bytes | str) -> None:
        """Write a document below the root: ``strategies/chat``, ``canaries/chat``, ``control/freeze``."""
        content = body.encode() if isinstance(body, str) else body
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        if self.options.documents == "consul":
            await self.consul.put(f"{PREFIX}/{name}", content)
        else:
            _replace(self._file(name), content)

    async def delete(self, name: str) -> None:
        """Delete a document."""
        if self.options.documents == "consul":
            await self.consul.delete(f"{PREFIX}/{name}")
        else:
            self._file(name).unlink()

    async def write_strategy(self, document: Mapping[str, Any], *, service: str = SERVICE) -> None:
        """Write a strategy document."""
        await self.write(f"strategies/{service}", document)

    async def announce(self, services: Mapping[str, Sequence[str]]) -> None:
        """Tell discovery the endpoints (ids of model servers) of these services; each may have several.

        A file holds exactly these; Consul keeps the instances that are there already.
        """
        versions = {server.name: server.version for server in self.fleet.servers}
        if self.options.topology == "consul":
            for service, endpoints in services.items():
                for endpoint in endpoints:
                    address, _, port = endpoint.rpartition(":")
                    meta = {"version": versions[endpoint]}
                    await self.consul.register(service, address, int(port), meta=meta)
            return
        content = {
            service: {
                "endpoints": [
                    {
                        "address": endpoint.rpartition(":")[0],
                        "port": int(endpoint.rpartition(":")[2]),
                        "version": versions[endpoint],
                    }
                    for endpoint in endpoints
                ]
            }
            for service, endpoints in services.items()
        }
        _replace(self.folder / "endpoints.yaml", json.dumps({"services": content}).encode())

    async def cli(self, *arguments: str) -> tuple[int, str]:
        """Run a ``trimtab`` command; gives its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "controlplane", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, output.decode(errors="replace")

    def load(self, **options: Any) -> LoadGenerator:
        """Make a load on Envoy that has not begun; `options` are those of `LoadOptions`."""
        defaults: dict[str, Any] = {
            "requests_per_second": 24.0,
            "prompt_tokens": 50,
            "max_tokens": (6, 14),
            "max_turns": 3,
            "seed": 1,
        }
        return LoadGenerator(LoadOptions(url=self.envoy_url, **(defaults | options)))

    # What Trimtab says.

    async def get(self, path: str) -> dict[str, Any]:
        """Read Trimtab's admin API; also a refusal's document."""
        async with self.session.get(self.admin_url + path, timeout=_TIMEOUT) as answer:
            content: dict[str, Any] = await answer.json(content_type=None)
            return content

    async def service(self, service: str = SERVICE) -> dict[str, Any]:
        """Read what the admin API says of a service."""
        return await self.get(f"/v1/services/{service}")

    async def reported(self, service: str = SERVICE) -> dict[str, Any]:
        """Read what Trimtab wrote to ``status/<service>``; empty if nothing."""
        if self.options.documents == "consul":
            found = await self.consul.api("GET", f"kv/{PREFIX}/status/{service}?raw", ok=False)
            text = found if isinstance(found, str) else json.dumps(found)
        else:
            file = self._file(f"status/{service}")
            text = file.read_text() if file.exists() else ""
        content: dict[str, Any] = json.loads(text) if text else {}
        return content

    def decisions(self) -> list[dict[str, Any]]:
        """Read the records of ``decisions.log``, oldest first (of the newest file)."""
        file = self.state / "decisions.log"
        return list(framing.read(file)) if file.exists() else []

    async def acked(self) -> dict[str, tuple[str, str]]:
        """Resource type → (intended version, acknowledged version) of the first node; empty without one."""
        nodes = (await self.get("/v1/status"))["nodes"]
        types = nodes[0]["types"] if nodes else []
        return {each["type"]: (each["intended_version"], each["acked_version"]) for each in types}

    # What Envoy says.

    async def weights(self, cluster: str = SERVICE) -> dict[str, int]:
        """Endpoint → weight, from Envoy's ``/clusters``."""
        return {name: host.weight for name, host in (await self.envoy_admin.hosts(cluster)).items()}

    async def assigned(self, cluster: str = SERVICE) -> dict[str, int]:
        """Endpoint → weight, from Envoy's ``/config_dump?include_eds``."""
        dump = await self.envoy_get("/config_dump?include_eds")
        found: dict[str, int] = {}
        for part in dump["configs"]:
            for entry in part.get("dynamic_endpoint_configs", ()):
                config = entry["endpoint_config"]
                if config["cluster_name"] == cluster:
                    found |= _assignment(config)
        return found

    async def update_counters(self) -> dict[str, int]:
        """Read all counters of xDS updates that Envoy attempted, took or refused."""
        kinds = (".update_attempt", ".update_success", ".update_rejected", ".update_failure")
        counters = await self.envoy_admin.counters("")
        return {name: value for name, value in counters.items() if name.endswith(kinds)}

    async def envoy_get(self, path: str) -> dict[str, Any]:
        """Read one page of Envoy's admin API as JSON."""
        url = f"http://127.0.0.1:{self.ports.envoy_admin}{path}"
        async with self.session.get(url, timeout=_TIMEOUT) as answer:
            content: dict[str, Any] = await answer.json(content_type=None)
            return content

    async def until(
        self, condition: Callable[[], Awaitable[object]], *, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Wait until a condition holds; a peer that does not answer is one that does not hold.

        Raises:
            AssertionError: if it does not in time, with the end of Trimtab's log.
        """

        async def holds() -> bool:
            try:
                return bool(await condition())
            except (aiohttp.ClientError, TimeoutError):
                return False

        try:
            await eventually(holds, seconds=seconds, interval=0.05)
        except TimeoutError as error:
            log = self.trimtab.output[-4000:]
            raise AssertionError(f"did not happen in {seconds} s:\n{log}") from error

    async def until_served(self, cluster: str = SERVICE, *, endpoints: Sequence[str] | None = None) -> None:
        """Wait until Envoy has exactly these endpoints (all, by default) in a cluster, and listens."""
        wanted = set(self.names if endpoints is None else endpoints)

        async def is_served() -> bool:
            return set(await self.weights(cluster)) == wanted and await self.envoy_admin.is_ready()

        await self.until(is_served)

    def _file(self, name: str) -> Path:
        return self.folder / "documents" / (f"{name}.json" if not name.startswith("control/") else name)


@contextlib.asynccontextmanager
async def running_system(folder: Path, options: SystemOptions | None = None) -> AsyncIterator[System]:
    """Run a system until the block ends. Trimtab and Envoy answer by then; wait with `until_served`."""
    options = options or SystemOptions()
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        fleet = await stack.enter_async_context(_fleet(options))
        consul, prometheus = await _servers(folder, options, fleet, stack)
        ports = _pick_ports()
        system = System(
            options=options,
            folder=folder,
            ports=ports,
            fleet=fleet,
            trimtab=Part(
                [sys.executable, "-m", "controlplane", "serve", "--config", str(folder / "trimtab.toml")],
                _answers(session, f"http://127.0.0.1:{ports.admin}/healthz"),
            ),
            envoy=Part(
                [
                    find_tool("envoy"),
                    *("-c", str(folder / "bootstrap.json"), "--log-level", "warning"),
                    *("--disable-hot-restart", "--concurrency", "1"),
                ],
                _answers(session, f"http://127.0.0.1:{ports.envoy_admin}/server_info"),
            ),
            envoy_admin=EnvoyAdmin(f"http://127.0.0.1:{ports.envoy_admin}", session),
            session=session,
            consul_or_none=consul,
            prometheus_or_none=prometheus,
        )
        await _write_files(system)
        stack.push_async_callback(system.trimtab.kill)
        stack.push_async_callback(system.envoy.kill)
        if options.is_trimtab_started:
            await system.trimtab.start()
        if options.is_envoy_started:
            await system.envoy.start()
        yield system


def _fleet(options: SystemOptions) -> SimFleet:
    return SimFleet(
        SimOptions(
            ports=(0,) * len(options.speeds),
            speeds=options.speeds,
            versions=options.versions,
            profile=options.profile,
        )
    )


async def _servers(
    folder: Path, options: SystemOptions, fleet: SimFleet, stack: contextlib.AsyncExitStack
) -> tuple[ConsulServer | None, PrometheusServer | None]:
    consul = prometheus = None
    if "consul" in {options.documents, options.topology}:
        consul = await stack.enter_async_context(consul_server())
    if options.signals == "prometheus":
        targets = [Target(name, "/metrics") for name in fleet.names]
        prometheus = await stack.enter_async_context(
            prometheus_server(folder / "prometheus", targets, scrape_seconds=0.5)
        )
    return consul, prometheus


async def _write_files(system: System) -> None:
    folder = system.folder
    for kind in ("strategies", "canaries", "control", "status"):
        (folder / "documents" / kind).mkdir(parents=True, exist_ok=True)
    envoy = bootstrap(system.ports.xds, system.options.variant, "envoy-1")
    envoy["admin"]["address"]["socket_address"]["port_value"] = system.ports.envoy_admin
    (folder / "bootstrap.json").write_text(json.dumps(envoy))
    system.config.write_text(_toml(_settings(system)))
    await system.announce({SERVICE: system.names})
    if system.options.strategy is not None:
        await system.write_strategy(system.options.strategy)


def _settings(system: System) -> Tables:
    options, ports = system.options, system.ports
    tables: dict[str, dict[str, Any]] = {
        "sources": {
            "documents": options.documents,
            "topology": options.topology,
            "signals": options.signals,
            "directory": str(system.folder / "documents"),
            "endpoints_file": str(system.folder / "endpoints.yaml"),
        },
        "xds": {"port": ports.xds},
        "admin": {"port": ports.admin},
        "listener": {"address": "127.0.0.1", "port": ports.listener},
        "scrape": {"envoy_urls": [f"http://127.0.0.1:{ports.envoy_admin}/stats/prometheus"]},
        "store": {"directory": str(system.state)},
        "loop": {"interval_seconds": 0.5},
        "log": {"format": "json"},
        # Faults are over in seconds here, and so are the waits between tries.
        "fuse": {"retry_min_seconds": 0.2, "retry_max_seconds": 1.0},
    }
    if system.consul_or_none is not None:
        tables["consul"] = {
            "address": system.consul.address,
            "retry_min_seconds": 0.2,
            "retry_max_seconds": 1.0,
        }
    if system.prometheus_or_none is not None:
        tables["prometheus"] = {"url": system.prometheus.url}
    for table, values in options.settings.items():
        tables[table] = tables.get(table, {}) | dict(values)
    return tables


def _toml(tables: Tables) -> str:
    """Write tables of strings, numbers, booleans and lists: there JSON is TOML."""
    return "\n".join(
        f"[{table}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        for table, values in tables.items()
    )


def _pick_ports() -> Ports:
    """Find free ports; all are held open until the last is known, so that none comes twice."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        xds, admin, listener, envoy_admin = (int(each.getsockname()[1]) for each in sockets)
    return Ports(xds=xds, admin=admin, listener=listener, envoy_admin=envoy_admin)


def _answers(session: aiohttp.ClientSession, url: str) -> Callable[[], Awaitable[bool]]:
    async def answers() -> bool:
        try:
            async with session.get(url, timeout=_TIMEOUT) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    return answers


def _assignment(config: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for locality in config.get("endpoints", ()):
        for each in locality.get("lb_endpoints", ()):
            address = each["endpoint"]["address"]["socket_address"]
            found[f"{address['address']}:{address['port_value']}"] = int(each["load_balancing_weight"])
    return found


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    os.replace(draft, path)  # noqa: PTH105 - atomic on purpose, and named so
