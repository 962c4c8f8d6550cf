"""The scene: a temporary folder, the documents, and the processes, all on free loopback ports."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controlplane.errors import TrimtabError

SERVICE = "chat"
STABLE_SPEEDS = (1.0, 1.0, 2.0, 2.0, 4.0, 4.0)
"""GPU classes of the six stable servers, in multiples of the slowest."""
CANARY_SPEEDS = (2.0, 2.0)
_SLOWEST_SPEED = 0.25
"""Of the slowest class, in the simulator's terms: slow enough that a laptop's load fills the fleet."""

_CAPACITY = {"max_running": 8, "min_tokens": 50, "min_utilization": 0.3, "latency": "none"}
"""Eight requests fill a simulated server, so each is a large step of its utilisation: taking none of
them for less than 0.3 keeps one request more or less from moving weights.
"""

_READY_TIMEOUT_SECONDS = 30.0
_STOP_TIMEOUT_SECONDS = 8.0


class DemoError(TrimtabError):
    """A part of the demo did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where everything listens."""

    xds: int
    trimtab_admin: int
    envoy: int
    envoy_admin: int
    stable: tuple[int, ...]
    canary: tuple[int, ...]

    @property
    def servers(self) -> tuple[int, ...]:
        """All model servers, stable first."""
        return self.stable + self.canary


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A set scene."""

    folder: Path
    ports: Ports

    @property
    def envoy_url(self) -> str:
        """Where requests go."""
        return f"http://127.0.0.1:{self.ports.envoy}"

    @property
    def envoy_admin_url(self) -> str:
        """Envoy's admin API."""
        return f"http://127.0.0.1:{self.ports.envoy_admin}"

    @property
    def trimtab_url(self) -> str:
        """Trimtab's admin API."""
        return f"http://127.0.0.1:{self.ports.trimtab_admin}"

    @property
    def config(self) -> Path:
        """Trimtab's settings file."""
        return self.folder / "trimtab.toml"

    def write_strategy(self, strategy: Mapping[str, Any]) -> None:
        """Put a strategy document in force, as `trimtab strategy push` would."""
        _replace(self.folder / "documents" / "strategies" / f"{SERVICE}.json", strategy)

    def write_canary(self, canary: Mapping[str, Any]) -> None:
        """Put a canary document in force."""
        _replace(self.folder / "documents" / "canaries" / f"{SERVICE}.json", canary)


def pick_ports() -> Ports:
    """Find free loopback ports; all are held open until the last is known, so none comes twice."""
    count = 4 + len(STABLE_SPEEDS) + len(CANARY_SPEEDS)
    sockets = [socket.socket() for _ in range(count)]
    try:
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        ports = [int(found.getsockname()[1]) for found in sockets]
    finally:
        for found in sockets:
            found.close()
    stable_end = 4 + len(STABLE_SPEEDS)
    return Ports(
        xds=ports[0],
        trimtab_admin=ports[1],
        envoy=ports[2],
        envoy_admin=ports[3],
        stable=tuple(ports[4:stable_end]),
        canary=tuple(ports[stable_end:]),
    )


def strategy(version: str, *, law: str, idle_timeout_seconds: float = 300.0) -> dict[str, Any]:
    """Write the demo's strategy document: the real guards, with time scaled to a minute's play."""
    return {
        "schema": 1,
        "version": version,
        "law": law,
        # Answers in the demo are short and the window too: what counts as enough is scaled down.
        "parameters": _CAPACITY if law == "capacity" else {},
        "signals": {"engine": "vllm", "window_seconds": 8, "stale_after_seconds": 10},
        "guards": {
            "interval_seconds": 2,
            "tau_down_seconds": 3,
            "tau_up_seconds": 5,
            "step_down_ratio": 0.5,
            "step_up_ratio": 0.7,
            "hysteresis_ratio": 0.04,
            "hysteresis_endpoint_ratio": 0.5,
            "dead_band_ratio": 0.3,
            "slow_start_seconds": 0,
            "min_samples": 5,
            "hold_seconds": 30,
        },
        "slo": {"ttft_p90_seconds": 1.0},
        "hash_policy": [{"kind": "header", "name": "x-session-id"}],
        "routing": {"domains": ["*"], "idle_timeout_seconds": idle_timeout_seconds},
    }


def write_files(folder: Path, ports: Ports) -> Stage:
    """Write settings, endpoints, first documents and Envoy's bootstrap."""
    stage = Stage(folder=folder, ports=ports)
    for kind in ("strategies", "canaries", "control"):
        (folder / "documents" / kind).mkdir(parents=True)
    (folder / "logs").mkdir()
    servers = [(port, "v1") for port in ports.stable] + [(port, "v2") for port in ports.canary]
    endpoints = [{"address": "127.0.0.1", "port": port, "version": version} for port, version in servers]
    _replace(folder / "endpoints.yaml", {"services": {SERVICE: {"endpoints": endpoints}}})
    stage.write_strategy(strategy("1.0.0", law="equal"))
    stage.config.write_text(_settings(folder, ports), "utf-8")
    (folder / "envoy.yaml").write_text(yaml.safe_dump(_bootstrap(ports)), "utf-8")
    return stage


@asynccontextmanager
async def processes(stage: Stage) -> AsyncIterator[None]:
    """Run the model servers, Trimtab and Envoy; stop them all at the end.

    Raises:
        DemoError: if one does not become ready, with the end of what it printed.
    """
    envoy = shutil.which("envoy") or str(Path(sys.executable).with_name("envoy"))
    trimtab = [sys.executable, "-m", "controlplane"]
    ports = stage.ports
    sim = [
        "sim-server",
        "--ports",
        ",".join(map(str, ports.servers)),
        "--speed",
        ",".join(str(_SLOWEST_SPEED * speed) for speed in STABLE_SPEEDS + CANARY_SPEEDS),
        "--server-version",
        ",".join(["v1"] * len(ports.stable) + ["v2"] * len(ports.canary)),
    ]
    flags = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
    programs: list[tuple[str, Sequence[str], int]] = [
        ("sim-server", [*trimtab, *sim], ports.servers[-1]),
        ("trimtab", [*trimtab, "serve", "--config", str(stage.config)], ports.trimtab_admin),
        ("envoy", [envoy, "-c", str(stage.folder / "envoy.yaml"), *flags], ports.envoy),
    ]
    running: list[asyncio.subprocess.Process] = []
    try:
        for name, command, port in programs:
            running.append(await _start(stage.folder / "logs" / f"{name}.log", command))
            await _await_port(stage.folder / "logs" / f"{name}.log", name, running[-1], port)
        yield
    finally:
        await asyncio.gather(*(_stop(process) for process in reversed(running)))


async def _start(log: Path, command: Sequence[str]) -> asyncio.subprocess.Process:
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            # A Ctrl-C in the terminal is for the demo, which then stops its parts in order.
            start_new_session=True,
        )


async def _await_port(log: Path, name: str, process: asyncio.subprocess.Process, port: int) -> None:
    try:
        async with asyncio.timeout(_READY_TIMEOUT_SECONDS):
            while process.returncode is None:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                return
    except TimeoutError:
        pass
    tail = await asyncio.to_thread(log.read_text, "utf-8", errors="replace")
    raise DemoError(f"`{name}` did not become ready on port {port}:\n{tail[-2000:]}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content, indent=2), "utf-8")
    os.replace(draft, path)  # noqa: PTH105 - atomic on purpose, and named so


def _settings(folder: Path, ports: Ports) -> str:
    return f"""\
[sources]
directory = "{folder}/documents"
endpoints_file = "{folder}/endpoints.yaml"

[xds]
port = {ports.xds}

[admin]
port = {ports.trimtab_admin}

[listener]
address = "127.0.0.1"
port = {ports.envoy}

[scrape]
envoy_urls = ["http://127.0.0.1:{ports.envoy_admin}/stats/prometheus"]

[store]
directory = "{folder}/state"

[loop]
interval_seconds = 1
"""


def _bootstrap(ports: Ports) -> dict[str, Any]:
    """Envoy's bootstrap: everything but the way to Trimtab comes from Trimtab."""
    ads = {"ads": {}, "resource_api_version": "V3"}
    http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {
        "node": {"id": "demo-envoy", "cluster": "demo"},
        "admin": {"address": _address(ports.envoy_admin)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "trimtab"}}],
            },
            "cds_config": ads,
            "lds_config": ads,
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "trimtab",
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": {
                        http2: {
                            "@type": f"type.googleapis.com/{http2}",
                            "explicit_http_config": {"http2_protocol_options": {}},
                        },
                    },
                    "load_assignment": {
                        "cluster_name": "trimtab",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(ports.xds)}}]}],
                    },
                },
            ],
        },
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
