"""A whole real system: model servers, Consul, Prometheus, `trimtab serve` and Envoy, on free ports.

Only the model servers run in this process (a test sets their faults directly); all else are processes
that a test may kill and start again on the same ports.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from controlplane.demo.envoy import EnvoyAdmin
from controlplane.sim.fleet import SimFleet, SimOptions
from tests.support.consul_server import ConsulServer, consul_server
from tests.support.process import find_tool
from tests.support.prometheus_server import PrometheusServer, Target, prometheus_server
from tests.support.system_handle import System
from tests.support.system_options import PREFIX, SERVICE, SystemOptions, Tables, strategy_document
from tests.support.system_parts import PATIENCE_SECONDS, Part, Ports, answers, pick_ports
from tests.support.xds_envoy import bootstrap

__all__ = [
    "PATIENCE_SECONDS",
    "PREFIX",
    "SERVICE",
    "Part",
    "Ports",
    "System",
    "SystemOptions",
    "running_system",
    "strategy_document",
]


@contextlib.asynccontextmanager
async def running_system(folder: Path, options: SystemOptions | None = None) -> AsyncIterator[System]:
    """Run a system until the block ends. Trimtab and Envoy answer by then; wait with `until_served`."""
    options = options or SystemOptions()
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        fleet = await stack.enter_async_context(_fleet(options))
        consul, prometheus = await _servers(folder, options, fleet, stack)
        ports = pick_ports()
        system = System(
            options=options,
            folder=folder,
            ports=ports,
            fleet=fleet,
            trimtab=Part(
                [sys.executable, "-m", "controlplane", "serve", "--config", str(folder / "trimtab.toml")],
                answers(session, f"http://127.0.0.1:{ports.admin}/healthz"),
            ),
            envoy=Part(
                [
                    find_tool("envoy"),
                    *("-c", str(folder / "bootstrap.json"), "--log-level", "warning"),
                    *("--disable-hot-restart", "--concurrency", "1"),
                ],
                answers(session, f"http://127.0.0.1:{ports.envoy_admin}/server_info"),
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
