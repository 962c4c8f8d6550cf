"""Requests through the real Envoy go where the built configuration sends them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
import xxhash
from aiohttp import web

from controlplane.model.plan import (
    ClusterPlan,
    ClusterShare,
    FleetPlan,
    ListenerPlan,
    RoutePlan,
)
from controlplane.model.rollout import TOTAL_PARTS
from controlplane.model.topology import Endpoint
from controlplane.xds.build import SnapshotBuilder
from tests.support.build_ads import BuiltEnvoy, built_envoy, settles
from tests.support.build_plans import STRATEGY, canary_route, cluster_plan, weighted
from tests.support.process import eventually

pytestmark = pytest.mark.envoy


@pytest.fixture
async def envoy(tmp_path: Path) -> AsyncIterator[BuiltEnvoy]:
    async with built_envoy(tmp_path) as running:
        yield running


def local(port: int, **facts: str) -> Endpoint:
    return Endpoint(address="127.0.0.1", port=port, **facts)  # type: ignore[arg-type]


async def named_server(stack: AsyncExitStack, name: str) -> Endpoint:
    """Run an HTTP server that answers every request with its name."""

    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=name)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return local(runner.addresses[0][1])


class Gateway:
    """Sends requests through Envoy's listener."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self._url = f"http://127.0.0.1:{port}/"

    async def ask(self, **headers: str) -> tuple[int, str]:
        """Send one request; underscores in names are dashes."""
        named = {"host": "llama"} | {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._http.get(self._url, headers=named) as answer:
            return answer.status, await answer.text()


async def open_gateway(envoy: BuiltEnvoy) -> Gateway:
    """Wait until the listener is open."""
    found: list[Gateway] = []

    async def is_open() -> bool:
        with contextlib.suppress(LookupError, aiohttp.ClientConnectorError):
            gateway = Gateway(envoy.http, await envoy.port("trimtab"))
            await gateway.ask()
            found.append(gateway)
        return bool(found)

    await eventually(is_open)
    return found[0]


def closed_port(stack: AsyncExitStack) -> int:
    """Take a port on which nobody listens, and keep it: connections to it are refused."""
    taken = stack.enter_context(socket.socket())
    taken.bind(("127.0.0.1", 0))
    return int(taken.getsockname()[1])


def two_subsets(baseline: Endpoint, canary: Endpoint) -> tuple[ClusterPlan, ...]:
    return cluster_plan("llama", weighted([baseline])), cluster_plan("llama/canary", weighted([canary]))


async def test_a_canary_gets_exactly_the_keys_below_its_parts_and_all_matched_requests(
    envoy: BuiltEnvoy,
) -> None:
    builder = SnapshotBuilder(max_resource_bytes=1 << 20)
    listener = ListenerPlan(name="trimtab", address="127.0.0.1", port=0)
    async with AsyncExitStack() as stack:
        clusters = two_subsets(await named_server(stack, "baseline"), await named_server(stack, "canary"))
        for parts in (0, TOTAL_PARTS // 2, TOTAL_PARTS):
            plan = FleetPlan(
                listener=listener, clusters=clusters, routes=(canary_route(canary_parts=parts),)
            )
            snapshot = builder.build(plan)
            await envoy.ads.push(snapshot)
            await settles(envoy, snapshot)
            gateway = await open_gateway(envoy)
            for key in map(str, range(40)):
                is_canary = xxhash.xxh64_intdigest(key.encode()) % TOTAL_PARTS < parts
                expected = (200, "canary" if is_canary else "baseline")
                assert await gateway.ask(x_session_id=key) == expected, (parts, key)
            for value in ("always", ""):
                assert await gateway.ask(x_canary=value) == (200, "canary")
            assert await gateway.ask(host="llama:8080", x_canary="always") == (200, "canary")
            assert (await gateway.ask(host="other"))[0] == 404


async def test_a_retry_goes_to_another_host_than_the_hash_s(envoy: BuiltEnvoy) -> None:
    listener = ListenerPlan(name="trimtab", address="127.0.0.1", port=0)
    async with AsyncExitStack() as stack:
        alive, refuses = await named_server(stack, "alive"), local(closed_port(stack))
        cluster = cluster_plan("llama", weighted([alive, refuses]))
        route = RoutePlan("llama", STRATEGY, (), (ClusterShare("llama", 1),))
        snapshot = SnapshotBuilder(max_resource_bytes=1 << 20).build(
            FleetPlan(listener, (cluster,), (route,))
        )
        await envoy.ads.push(snapshot)
        await settles(envoy, snapshot)
        gateway = await open_gateway(envoy)
        answers = await asyncio.gather(*(gateway.ask(x_session_id=str(key)) for key in range(40)))
        assert set(answers) == {(200, "alive")}
