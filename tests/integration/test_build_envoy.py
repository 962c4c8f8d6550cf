"""The real Envoy accepts everything the builder can emit, and does with it what was meant."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
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
    WeightedEndpoint,
)
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, Snapshot
from controlplane.model.rollout import TOTAL_PARTS, HeaderMatch
from controlplane.model.strategy import (
    HashPolicy,
    HealthCheck,
    Limits,
    Locality,
    Maglev,
    OutlierDetection,
    Retry,
    Routing,
    Strategy,
)
from controlplane.model.topology import Endpoint, Health
from controlplane.xds.build import SnapshotBuilder
from tests.support.build_ads import BuiltEnvoy, built_envoy
from tests.support.build_plans import STRATEGY, canary_route, cluster_plan, weighted
from tests.support.process import eventually

pytestmark = pytest.mark.envoy

ZONES = Locality(weights={"a": 1, "b": 2**32 - 2})
TIERS = Locality(priorities={"b": 127})
POLICIES = (
    HashPolicy(kind="header", name="x-session-id"),
    HashPolicy(kind="cookie", name="made", ttl_seconds=31_536_000, path="/"),
    HashPolicy(kind="cookie", name="session", ttl_seconds=0),
    HashPolicy(kind="cookie", name="given"),
    HashPolicy(kind="query_parameter", name="user"),
    HashPolicy(kind="source_ip", terminal=True),
)
VARIANTS: dict[str, Strategy] = {
    "default": STRATEGY,
    "zones": replace(STRATEGY, locality=ZONES),
    "tiers": replace(STRATEGY, locality=TIERS),
    "both": replace(STRATEGY, locality=Locality(weights=ZONES.weights, priorities=TIERS.priorities)),
    "half-weighted": replace(STRATEGY, locality=Locality(weights={"a": 1})),
    "outlier": replace(STRATEGY, outlier_detection=OutlierDetection()),
    "outlier-extreme": replace(
        STRATEGY,
        outlier_detection=OutlierDetection(
            consecutive_5xx=100_000,
            interval_seconds=0.001,
            base_ejection_seconds=86_400,
            max_ejection_percent=0,
        ),
    ),
    "health": replace(STRATEGY, health_check=HealthCheck()),
    "health-http2": replace(STRATEGY, health_check=HealthCheck(), upstream_protocol="http2"),
    "http2": replace(STRATEGY, upstream_protocol="http2"),
    "policies": replace(STRATEGY, hash_policy=POLICIES),
    "no-policy": replace(STRATEGY, hash_policy=()),
    "no-retry": replace(STRATEGY, routing=Routing(retry=Retry(attempts=0))),
    "many-retries": replace(STRATEGY, routing=Routing(retry=Retry(attempts=10, on=("5xx", "reset")))),
    "timeouts": replace(STRATEGY, routing=Routing(timeout_seconds=86_400, idle_timeout_seconds=0)),
    "prefix": replace(STRATEGY, routing=Routing(prefix="/v1/")),
    "small-table": replace(STRATEGY, maglev=Maglev(table_size=7)),
    "least-limits": replace(
        STRATEGY,
        limits=Limits(
            max_connections=1,
            max_pending_requests=1,
            max_requests=1,
            max_retries=1,
            connect_timeout_seconds=0.001,
        ),
    ),
    "most-limits": replace(
        STRATEGY,
        limits=Limits(
            max_connections=2**32 - 1,
            max_pending_requests=2**32 - 1,
            max_requests=2**32 - 1,
            max_retries=2**32 - 1,
            connect_timeout_seconds=86_400,
        ),
    ),
}
DOMAINS = {"default": ("*",), "prefix": ("llm.example", "*.llm.example", "llm.example:*")}


@pytest.fixture
async def envoy(tmp_path: Path) -> AsyncIterator[BuiltEnvoy]:
    async with built_envoy(tmp_path) as running:
        yield running


def local(port: int, **facts: str) -> Endpoint:
    return Endpoint(address="127.0.0.1", port=port, **facts)  # type: ignore[arg-type]


def members() -> tuple[WeightedEndpoint, ...]:
    """Give endpoints of every kind. Port 9 is discarded by nobody: nothing listens there."""
    return weighted(
        [
            local(9, zone="a", region="north"),
            local(10, zone="b", hash_key="pod-7"),
            Endpoint(address="::1", port=9, zone="a", region="south"),
            Endpoint(address="127.0.0.2", port=9, zone="b", health=Health.UNHEALTHY),
            Endpoint(address="127.0.0.3", port=9, zone="b", health=Health.DRAINING),
        ],
        *(1, 2, 300, 70_000, 2**32 - 1 - 70_303),
    )


def all_variants(listener: ListenerPlan, *, rotated_by: int) -> FleetPlan:
    """Make a service for each variant; rotating hands every service another one's strategy."""
    names, strategies = list(VARIANTS), list(VARIANTS.values())
    strategies = strategies[rotated_by:] + strategies[:rotated_by]
    clusters = [
        cluster_plan(name, members(), strategy) for name, strategy in zip(names, strategies, strict=True)
    ]
    clusters.append(cluster_plan("empty"))
    routes = [
        RoutePlan(each.service, each.strategy, DOMAINS.get(each.name, ()), (ClusterShare(each.name, 1),))
        for each in clusters
    ]
    return FleetPlan(listener=listener, clusters=tuple(clusters), routes=tuple(routes))


async def settles(envoy: BuiltEnvoy, snapshot: Snapshot) -> None:
    """Wait until Envoy uses exactly this snapshot's clusters, listener and routes, with nothing warming."""
    intended = {
        part: {each.name: each.version for each in snapshot.sets[url].resources.values()}
        for part, url in (
            ("dynamic_active_clusters", CLUSTER),
            ("dynamic_listeners", LISTENER),
            ("dynamic_route_configs", ROUTE),
        )
    }

    async def is_in_use() -> bool:
        for part, versions in intended.items():
            if await envoy.versions(part) != versions:
                return False
        return not await envoy.versions("dynamic_warming_clusters")

    await eventually(is_in_use)


async def test_every_variant_is_accepted_at_first_and_in_place_of_every_other(envoy: BuiltEnvoy) -> None:
    builder = SnapshotBuilder(max_resource_bytes=1 << 20)
    listener = ListenerPlan(name="trimtab", address="127.0.0.1", port=0)
    for rotated_by in (0, 1, 2):
        snapshot = builder.build(all_variants(listener, rotated_by=rotated_by))
        await envoy.ads.push(snapshot)
        await settles(envoy, snapshot)


async def test_weights_health_and_localities_arrive_as_planned(envoy: BuiltEnvoy) -> None:
    plan = FleetPlan(
        listener=ListenerPlan(name="any", address="::", port=0),
        clusters=(cluster_plan("llama", members(), VARIANTS["tiers"]),),
        routes=(),
    )
    snapshot = SnapshotBuilder(max_resource_bytes=1 << 20).build(plan)
    await envoy.ads.push(snapshot)
    await settles(envoy, snapshot)
    status = await envoy.admin("/clusters?format=json")
    (llama,) = [each for each in status["cluster_statuses"] if each["name"] == "llama"]
    seen = {}
    for host in llama["host_statuses"]:
        address = host["address"]["socket_address"]
        where = f"{address['address']}:{address['port_value']}"
        health = host["health_status"]["eds_health_status"]
        seen[where] = (host["weight"], health, host.get("priority", 0), host["locality"].get("zone"))
    assert seen == {
        f"{each.endpoint.address}:{each.endpoint.port}": (
            each.weight,
            each.endpoint.health.name,
            1 if each.endpoint.zone == "b" else 0,
            each.endpoint.zone,
        )
        for each in members()
    }


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


async def test_a_weight_change_reaches_envoy_through_its_endpoints_alone(envoy: BuiltEnvoy) -> None:
    builder = SnapshotBuilder(max_resource_bytes=1 << 20)
    listener = ListenerPlan(name="trimtab", address="127.0.0.1", port=0)
    matches = (HeaderMatch(header="x", value="y"),)
    route = RoutePlan("llama", STRATEGY, (), (ClusterShare("llama", 1),), matches, "llama")
    for weights in ((1, 2), (70_000, 3)):
        cluster = cluster_plan("llama", weighted([local(9), local(10)], *weights))
        snapshot = builder.build(FleetPlan(listener, (cluster,), (route,)))
        await envoy.ads.push(snapshot)
        await settles(envoy, snapshot)

        async def has_weights(expected: set[int] = set(weights)) -> bool:  # noqa: B006 - read only
            status = await envoy.admin("/clusters?format=json")
            clusters = status["cluster_statuses"]
            hosts = next(each["host_statuses"] for each in clusters if each["name"] == "llama")
            return {host["weight"] for host in hosts} == expected

        await eventually(has_weights)
    assert list(snapshot.sets[ENDPOINT].resources) == ["llama"]
