"""Plans that are refused: they do not close, or a resource is too large."""

from __future__ import annotations

import pytest

from controlplane.errors import InvalidPlan, OversizedResource
from controlplane.model.plan import ClusterPlan, ClusterShare, FleetPlan, RoutePlan
from controlplane.xds.build import SnapshotBuilder
from tests.support.build_plans import (
    STRATEGY,
    canary_route,
    cluster_plan,
    endpoint,
    fleet_plan,
    weighted,
)

LIMIT = 1 << 20
MEMBERS = [endpoint(index, zone="ab"[index % 2]) for index in range(4)]


def plain() -> FleetPlan:
    return fleet_plan(cluster_plan("llama", weighted(MEMBERS)), cluster_plan("qwen", weighted(MEMBERS)))


def two_routes(*domains: str) -> FleetPlan:
    shares = ClusterShare("llama", 1), ClusterShare("qwen", 1)
    routes = tuple(
        RoutePlan(share.cluster, STRATEGY, (domain,), (share,))
        for share, domain in zip(shares, domains, strict=True)
    )
    return fleet_plan(*plain().clusters, routes=routes)


def one_route(*split: tuple[str, int], match_cluster: str = "") -> FleetPlan:
    shares = tuple(ClusterShare(*share) for share in split)
    matches = canary_route(canary_parts=1).matches if match_cluster else ()
    route = RoutePlan("llama", STRATEGY, (), shares, matches, match_cluster)
    return fleet_plan(*plain().clusters, routes=(route,))


def twice(cluster: ClusterPlan) -> FleetPlan:
    return fleet_plan(cluster, cluster, routes=())


INVALID = {
    "a cluster name twice": (twice(plain().clusters[0]), "llama", "is empty or taken"),
    "a service twice": (
        fleet_plan(plain().clusters[0], routes=plain().routes[:1] * 2),
        "llama",
        "is empty or taken",
    ),
    "a domain twice": (two_routes("llm.example", "LLM.example"), "qwen", "belongs to service `llama`"),
    "an unknown cluster": (one_route(("nowhere", 1)), "llama", "`nowhere`, which is not in the plan"),
    "an unknown match": (one_route(("llama", 1), match_cluster="lost"), "llama", "`lost`"),
    "an empty split": (one_route(), "llama", "all zero"),
    "a split of nothing": (one_route(("llama", 0), ("qwen", 0)), "llama", "all zero"),
    "a negative part": (one_route(("llama", -1), ("qwen", 2)), "llama", "negative"),
    "a repeated share": (one_route(("llama", 1), ("llama", 2)), "llama", "more than once"),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_plan_that_does_not_close_is_refused_and_the_builder_goes_on(case: str) -> None:
    plan, service, reason = INVALID[case]
    builder = SnapshotBuilder(max_resource_bytes=LIMIT)
    before = builder.build(plain())
    with pytest.raises(InvalidPlan, match=reason) as caught:
        builder.build(plan)
    assert caught.value.service == service
    assert builder.build(plain()) == before


@pytest.mark.fault("R24")
def test_fault_r24_an_oversized_resource_is_refused_with_its_name_and_size() -> None:
    builder = SnapshotBuilder(max_resource_bytes=2_000)
    small = fleet_plan(cluster_plan("llama", weighted(MEMBERS)))
    before = builder.build(small)
    large = fleet_plan(cluster_plan("llama", weighted([endpoint(index) for index in range(200)])))
    with pytest.raises(OversizedResource) as caught:
        builder.build(large)
    assert (caught.value.name, caught.value.limit_bytes) == ("llama", 2_000)
    assert caught.value.size_bytes > 2_000
    assert builder.build(small) == before
