"""The real Envoy accepts everything the builder can emit, and does with it what was meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.model.plan import (
    ClusterShare,
    FleetPlan,
    ListenerPlan,
    RoutePlan,
    WeightedEndpoint,
)
from controlplane.model.resources import ENDPOINT
from controlplane.model.rollout import HeaderMatch
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
from tests.support.build_ads import BuiltEnvoy, built_envoy, settles
from tests.support.build_plans import STRATEGY, cluster_plan, weighted
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
