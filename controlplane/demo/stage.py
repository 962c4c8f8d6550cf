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

from controlplane.demo.files import Ports, bootstrap, settings, strategy
from controlplane.errors import TrimtabError

SERVICE = "chat"
STABLE_SPEEDS = (1.0, 1.0, 2.0, 2.0, 4.0, 4.0)
"""GPU classes of the six stable servers, in multiples of the slowest."""
CANARY_SPEEDS = (2.0, 2.0)
_SLOWEST_SPEED = 0.25
"""Of the slowest class, in the simulator's terms: slow enough that a laptop's load fills the fleet."""

_READY_TIMEOUT_SECONDS = 30.0
_STOP_TIMEOUT_SECONDS = 8.0


class DemoError(TrimtabError):
    """A part of the demo did not start."""


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
    stage.config.write_text(settings(folder, ports), "utf-8")
    (folder / "envoy.yaml").write_text(yaml.safe_dump(bootstrap(ports)), "utf-8")
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
