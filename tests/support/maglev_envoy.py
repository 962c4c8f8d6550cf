"""A real Envoy with static Maglev clusters, one upstream for all hosts, and a quick client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.core.maglev import EdsHealth, Host
from controlplane.model.strategy import HashPolicy

_HEADER = re.compile(rb"^(x-picked-host|x-picked-cluster|content-length): (.*?)\r$", re.MULTILINE)
_MAGLEV = "type.googleapis.com/envoy.extensions.load_balancing_policies.maglev.v3.Maglev"
_DEADLINE_SECONDS = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One static cluster under test; `addresses` are the hosts' in order, all served by the upstream."""

    name: str
    hosts: tuple[Host, ...]
    addresses: tuple[str, ...]
    table_size: int = 65_537
    zones: Mapping[str, int] | None = None
    key_kind: str = "address"
    """``address``, ``hostname`` or ``metadata``: where Envoy finds the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One virtual host, named like its domain, to one cluster or a split by parts."""

    name: str
    split: tuple[tuple[str, int], ...]
    policies: tuple[HashPolicy, ...] = (HashPolicy(kind="header", name="x-key"),)
    retries: int = 0
    """Further host selections that the `previous_hosts` predicate may ask for, on one retry."""


@dataclass(frozen=True, slots=True)
class Picked:
    """What a response tells: status, chosen host as ``ip:port`` and chosen cluster (empty: none)."""

    status: int
    host: str
    cluster: str


class Upstream(asyncio.Protocol):
    """Every model server at once: it listens on all of 127.0.0.0/8. Paths under ``/fail`` give 503."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._pending = b""

    def data_received(self, data: bytes) -> None:
        *requests, self._pending = (self._pending + data).split(b"\r\n\r\n")
        for request in requests:
            status = b"503 Broken" if b" /fail" in request.split(b"\r\n", 1)[0] else b"200 OK"
            self._transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")


class MaglevEnvoy:
    """The running Envoy: sends requests and reads gauges."""

    def __init__(self, *, port: int, admin: str) -> None:
        self._port = port
        self._admin = admin

    async def send(
        self, requests: Sequence[Sequence[tuple[str, str]]], *, connections: int = 4, source: str = ""
    ) -> list[Picked]:
        """Send requests, given as header lines with ``:path`` and ``:authority``; answers in order."""
        count = min(connections, len(requests))
        async with asyncio.timeout(_DEADLINE_SECONDS), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._exchange([_wire(r) for r in requests[i::count]], source))
                for i in range(count)
            ]
        rows = itertools.zip_longest(*(task.result() for task in tasks))
        return [picked for row in rows for picked in row if picked is not None]

    def gauges(self, cluster: str) -> tuple[int, int]:
        """Read (min, max) entries per host of a cluster."""
        url = f"http://{self._admin}/stats?filter=^cluster.{cluster}.maglev_lb"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        values = dict(line.rsplit(".", 1)[1].split(": ") for line in lines)
        return int(values["min_entries_per_host"]), int(values["max_entries_per_host"])

    async def _exchange(self, requests: list[bytes], source: str) -> list[Picked]:
        local = (source, 0) if source else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=local)
        answers: list[Picked] = []
        try:
            for request in requests:
                writer.write(request)
                answers.append(await _read(reader))
        finally:
            writer.close()
        return answers


async def _read(reader: asyncio.StreamReader) -> Picked:
    head = await reader.readuntil(b"\r\n\r\n")
    headers = {name: value.decode() for name, value in _HEADER.findall(head)}
    await reader.readexactly(int(headers.get(b"content-length", "0")))
    return Picked(
        status=int(head.split(b" ", 2)[1]),
        host=headers.get(b"x-picked-host", "").removeprefix("-"),
        cluster=headers.get(b"x-picked-cluster", "").removeprefix("-"),
    )


def _wire(headers: Sequence[tuple[str, str]]) -> bytes:
    pseudo = dict(header for header in headers if header[0].startswith(":"))
    lines = [f"GET {pseudo[':path']} HTTP/1.1", f"host: {pseudo[':authority']}"]
    lines += [f"{name}: {value}" for name, value in headers if not name.startswith(":")]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@contextlib.asynccontextmanager
async def running_envoy(
    clusters: Sequence[Cluster], routes: Sequence[Route], *, port: int, folder: Path
) -> AsyncIterator[MaglevEnvoy]:
    """Run Envoy over these clusters until the block ends."""
    bootstrap = folder / "bootstrap.json"
    bootstrap.write_text(json.dumps(_bootstrap(clusters, routes, port)))
    admin_file = folder / "admin"
    process = await asyncio.create_subprocess_exec(
        *("envoy", "-c", str(bootstrap), "--use-dynamic-base-id", "--concurrency", "1"),
        *("--log-level", "warning", "--log-path", str(folder / "envoy.log")),
        *("--admin-address-path", str(admin_file)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            admin, listener = await _addresses(process, admin_file, folder)
        yield MaglevEnvoy(port=listener, admin=admin)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _addresses(
    process: asyncio.subprocess.Process, admin_file: Path, folder: Path
) -> tuple[str, int]:
    """Poll until Envoy serves; there is no event to wait for outside its admin port."""
    while (found := _probe(admin_file)) is None:
        if process.returncode is not None:
            raise RuntimeError(f"Envoy ended: see {folder}/envoy.log")
        await asyncio.sleep(0.05)
    return found


def _probe(admin_file: Path) -> tuple[str, int] | None:
    """Read the admin address and the listener's port, once both are there."""
    admin = admin_file.read_text() if admin_file.exists() else ""
    if not admin:
        return None
    try:
        with urllib.request.urlopen(f"http://{admin}/listeners?format=json", timeout=5) as answer:
            statuses = json.load(answer).get("listener_statuses", [])
    except OSError:
        return None
    return (admin, statuses[0]["local_address"]["socket_address"]["port_value"]) if statuses else None


def _bootstrap(clusters: Sequence[Cluster], routes: Sequence[Route], port: int) -> dict[str, Any]:
    loopback = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network."
        "http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "maglev",
        "route_config": {"virtual_hosts": [_virtual_host(route) for route in routes]},
        "http_filters": [
            {
                "name": "router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {
        "admin": {"address": loopback},
        "static_resources": {
            "listeners": [{"name": "maglev", "address": loopback, "filter_chains": [chain]}],
            "clusters": [_cluster(cluster, port) for cluster in clusters],
        },
    }


def _virtual_host(route: Route) -> dict[str, Any]:
    shares: list[dict[str, Any]] = [{"name": name, "weight": parts} for name, parts in route.split]
    action: dict[str, Any] = {"hash_policy": [_policy(policy) for policy in route.policies]}
    if len(shares) == 1:
        action["cluster"] = shares[0]["name"]
    else:
        action["weighted_clusters"] = {"clusters": shares, "use_hash_policy": True}
    if route.retries:
        action["retry_policy"] = {
            "retry_on": "5xx",
            "num_retries": 1,
            "retry_back_off": {"base_interval": "0.001s"},
            "host_selection_retry_max_attempts": route.retries,
            "retry_host_predicate": [
                {
                    "name": "envoy.retry_host_predicates.previous_hosts",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.retry.host."
                        "previous_hosts.v3.PreviousHostsPredicate"
                    },
                }
            ],
        }
    return {
        "name": route.name,
        "domains": [route.name],
        "routes": [{"match": {"prefix": "/"}, "route": action}],
        "response_headers_to_add": [
            {"header": {"key": "x-picked-host", "value": "%UPSTREAM_REMOTE_ADDRESS%"}},
            {"header": {"key": "x-picked-cluster", "value": "%UPSTREAM_CLUSTER%"}},
        ],
    }


def _policy(policy: HashPolicy) -> dict[str, Any]:
    specifiers: dict[str, dict[str, Any]] = {
        "header": {"header": {"header_name": policy.name}},
        "cookie": {"cookie": {"name": policy.name}},
        "query_parameter": {"query_parameter": {"name": policy.name}},
        "source_ip": {"connection_properties": {"source_ip": True}},
    }
    return specifiers[policy.kind] | {"terminal": policy.terminal}


def _cluster(cluster: Cluster, port: int) -> dict[str, Any]:
    maglev: dict[str, Any] = {"@type": _MAGLEV, "table_size": cluster.table_size}
    if cluster.key_kind == "hostname":
        maglev["consistent_hashing_lb_config"] = {"use_hostname_for_hashing": True}
    if cluster.zones:
        maglev["locality_weighted_lb_config"] = {}
    localities: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for host, address in zip(cluster.hosts, cluster.addresses, strict=True):
        localities.setdefault((host.priority, host.zone), []).append(
            _endpoint(host, address, port, cluster.key_kind)
        )
    return {
        "name": cluster.name,
        "type": "STATIC",
        "circuit_breakers": {"thresholds": [{"max_connections": 100_000, "max_retries": 100_000}]},
        "load_balancing_policy": {
            "policies": [{"typed_extension_config": {"name": "maglev", "typed_config": maglev}}]
        },
        "load_assignment": {
            "cluster_name": cluster.name,
            "endpoints": [
                {
                    "locality": {"zone": zone},
                    "priority": priority,
                    "lb_endpoints": endpoints,
                    **(
                        {"load_balancing_weight": cluster.zones[zone]}
                        if cluster.zones and zone in cluster.zones
                        else {}
                    ),
                }
                for (priority, zone), endpoints in localities.items()
            ],
        },
    }


def _endpoint(host: Host, address: str, port: int, key_kind: str) -> dict[str, Any]:
    endpoint: dict[str, Any] = {
        "address": {"socket_address": {"address": address, "port_value": port}},
    }
    if key_kind == "hostname":
        endpoint["hostname"] = host.key
    described: dict[str, Any] = {
        "endpoint": endpoint,
        "health_status": {EdsHealth.HEALTHY: "UNKNOWN"}.get(host.health, host.health.name),
        "load_balancing_weight": host.weight,
    }
    if key_kind == "metadata":
        described["metadata"] = {"filter_metadata": {"envoy.lb": {"hash_key": host.key}}}
    return described
