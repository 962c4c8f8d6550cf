"""What Envoy itself says, over its admin port: the demo believes nothing else about weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class HostView:
    """One host of a cluster, as ``/clusters`` has it."""

    id: str
    weight: int
    requests: int


class EnvoyAdmin:
    """Reads one Envoy's admin API."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        """Read from `address` (``http://host:port``)."""
        self._address = address
        self._session = session

    async def is_ready(self) -> bool:
        """Tell if Envoy answers and is live."""
        try:
            async with self._session.get(f"{self._address}/ready", timeout=_TIMEOUT) as answer:
                return answer.status == 200  # noqa: PLR2004 - OK
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def hosts(self, cluster: str) -> dict[str, HostView]:
        """Read the hosts of a cluster with weights and request counts; empty if Envoy lacks it."""
        content = await self._json("/clusters?format=json")
        for status in content.get("cluster_statuses", ()):
            if status["name"] == cluster:
                hosts = [_host(host) for host in status.get("host_statuses", ())]
                return {host.id: host for host in hosts}
        return {}

    async def canary_percent(self, service: str) -> float | None:
        """Read the canary's share of a service's route; `None` if the route has no split."""
        for route in await self._routes(service):
            split = route.get("route", {}).get("weighted_clusters", {}).get("clusters")
            if split:
                parts: dict[str, int] = {entry["name"]: entry.get("weight", 0) for entry in split}
                return 100.0 * parts.get(f"{service}.canary", 0) / max(1, sum(parts.values()))
        return None

    async def idle_timeout(self, service: str) -> str:
        """Read the idle timeout of a service's route, as Envoy writes durations (``300s``)."""
        for route in await self._routes(service):
            found = route.get("route", {}).get("idle_timeout")
            if found:
                return str(found)
        return ""

    async def counters(self, prefix: str) -> dict[str, int]:
        """Read counters whose name starts with `prefix`."""
        url = f"{self._address}/stats?filter=^{prefix}&type=Counters"
        async with self._session.get(url, timeout=_TIMEOUT) as answer:
            lines = (await answer.text()).splitlines()
        return {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}

    async def _routes(self, service: str) -> list[Mapping[str, Any]]:
        content = await self._json("/config_dump?resource=dynamic_route_configs")
        return [
            route
            for config in content.get("configs", ())
            for host in config.get("route_config", {}).get("virtual_hosts", ())
            if host.get("name") == service
            for route in host.get("routes", ())
        ]

    async def _json(self, path: str) -> dict[str, Any]:
        async with self._session.get(self._address + path, timeout=_TIMEOUT) as answer:
            content: dict[str, Any] = await answer.json(content_type=None)
            return content


def _host(status: Mapping[str, Any]) -> HostView:
    address = status["address"]["socket_address"]
    counts = {stat["name"]: int(stat.get("value", 0)) for stat in status.get("stats", ())}
    return HostView(
        id=f"{address['address']}:{address['port_value']}",
        weight=int(status.get("weight", 1)),
        requests=counts.get("rq_total", 0),
    )
