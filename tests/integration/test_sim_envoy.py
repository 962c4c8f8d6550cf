"""Sessions through a real Envoy: what the load reports is what Maglev did."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controlplane.sim.engine import Profile
from controlplane.sim.fleet import SimFleet, SimOptions
from controlplane.sim.load import LoadGenerator, LoadOptions
from tests.support.sim_wait import DEADLINE_SECONDS, unused_port

pytestmark = pytest.mark.envoy

FAST = Profile(decode_tokens_per_second=500.0, prefill_tokens_per_second=100_000.0)
MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "envoy.extensions.filters.http.router.v3.Router"


def address(port: int) -> dict[str, Any]:
    return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}


def bootstrap(port: int, weights: dict[int, int]) -> dict[str, Any]:
    action = {
        "cluster": "sims",
        "timeout": "0s",
        "hash_policy": [{"header": {"header_name": "x-session-id"}}],
    }
    manager = {
        "@type": f"type.googleapis.com/{MANAGER}",
        "stat_prefix": "test",
        "http_filters": [{"name": "router", "typed_config": {"@type": f"type.googleapis.com/{ROUTER}"}}],
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": action}]}
            ]
        },
    }
    endpoints = [
        {"endpoint": address(server), "load_balancing_weight": weight} for server, weight in weights.items()
    ]
    return {
        "static_resources": {
            "listeners": [
                {
                    "name": "in",
                    **address(port),
                    "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
                }
            ],
            "clusters": [
                {
                    "name": "sims",
                    "type": "STATIC",
                    "lb_policy": "MAGLEV",
                    "load_assignment": {"cluster_name": "sims", "endpoints": [{"lb_endpoints": endpoints}]},
                }
            ],
        }
    }


@asynccontextmanager
async def running_envoy(config: dict[str, Any], port: int) -> AsyncIterator[str]:
    program = shutil.which("envoy") or str(Path(sys.executable).with_name("envoy"))
    flags = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(program, "--config-yaml", json.dumps(config), *flags)
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(DEADLINE_SECONDS), aiohttp.ClientSession() as client:
            while True:
                try:
                    async with client.get(f"{url}/health") as response:
                        assert response.status == 200
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
        yield url
    finally:
        process.kill()
        await process.wait()


async def test_sessions_stay_on_their_server_and_shares_follow_weights() -> None:
    # given two servers of which one has three times the weight
    async with SimFleet(SimOptions(ports=(0, 0), versions=("v1", "v2"), profile=FAST)) as fleet:
        light, heavy = fleet.servers
        port = unused_port()
        async with running_envoy(bootstrap(port, {light.port: 1, heavy.port: 3}), port) as url:
            load = LoadGenerator(
                LoadOptions(
                    url=url, requests_per_second=150.0, sessions=100, max_turns=3, max_tokens=(2, 4)
                )
            )

            # when conversations go through Envoy
            await load.run(seconds=2.0)

    # then each stays where its cache is
    report = load.report()
    assert report.errors == 0
    assert report.requests > 150
    assert (report.moved_sessions, report.flipped_sessions) == (0, 0)
    assert report.share(heavy.name) == pytest.approx(0.75, abs=0.15)
    later = [answer.cache_hit_ratio for answer in load.answers if answer.turn > 0]
    assert min(later) > 0.4
