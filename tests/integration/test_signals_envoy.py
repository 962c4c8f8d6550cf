"""The names and labels of a real Envoy's per-endpoint statistics."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from controlplane.config import ScrapeSettings
from controlplane.sources.scrape import ScrapeSignals
from controlplane.sources.signal_metrics import SignalMetrics
from tests.support.exporter import Load, exporter, vllm
from tests.support.process import find_tool, free_port, running
from tests.support.signal_requests import signal_request, values

pytestmark = pytest.mark.envoy

HTTP = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def bootstrap(*, admin: int, listener: int, upstreams: list[int]) -> str:
    """Write a static configuration with one cluster that counts by endpoint."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": "c"}}
    manager = {
        "@type": HTTP,
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": ROUTER}}],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    endpoints = [{"endpoint": {"address": address(port)}} for port in upstreams]
    cluster = {
        "name": "c",
        "type": "STATIC",
        "track_cluster_stats": {"per_endpoint_stats": True},
        "load_assignment": {"cluster_name": "c", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    listeners = [{"name": "in", "address": address(listener), "filter_chains": [chain]}]
    static = {"listeners": listeners, "clusters": [cluster]}
    return json.dumps({"admin": {"address": address(admin)}, "static_resources": static})


async def test_requests_and_errors_by_endpoint_refused_connections_included(tmp_path: Path) -> None:
    admin, listener, refusing = free_port(), free_port(), free_port()
    stats = f"http://127.0.0.1:{admin}/stats/prometheus"
    async with exporter() as pages, aiohttp.ClientSession() as session:
        pages.add("metrics", vllm(), Load())
        pages.pages["ok"] = lambda _: "hello"
        config = tmp_path / "envoy.json"
        config.write_text(bootstrap(admin=admin, listener=listener, upstreams=[pages.port, refusing]))

        async def is_ready() -> bool:
            try:
                async with session.get(f"http://127.0.0.1:{admin}/ready") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        command = [find_tool("envoy"), "-c", str(config), "--use-dynamic-base-id", "-l", "error"]
        async with running(command, is_ready=is_ready):
            source = ScrapeSignals(
                settings=ScrapeSettings(envoy_urls=(stats,)),
                session=session,
                clock=time.monotonic,
                metrics=SignalMetrics(CollectorRegistry()),
            )
            ids = [f"127.0.0.1:{pages.port}", f"127.0.0.1:{refusing}"]
            request = signal_request(ids, urls=[pages.url("metrics")] * 2)
            await source.read(request)
            started = time.monotonic()
            statuses = []
            for _ in range(40):
                async with session.get(f"http://127.0.0.1:{listener}/ok") as answer:
                    statuses.append(answer.status)
            await asyncio.sleep(
                max(0.0, started + 1.1 - time.monotonic())
            )  # an Envoy is asked once a second
            found = values(await source.read(request))
            elapsed = time.monotonic() - started

    assert statuses.count(200) == statuses.count(503) == 20
    for endpoint, requests, errors in ((ids[0], 20, 0), (ids[1], 20, 20)):
        assert found["requests_per_second", endpoint] * elapsed == pytest.approx(requests, rel=0.2)
        assert found["errors_per_second", endpoint] * elapsed == pytest.approx(errors, rel=0.2)
