"""Plans to build from, and the library's own encoding of them to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from envoy_data_plane.envoy.config.core.v3 import Locality as EnvoyLocality
from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment, LocalityLbEndpoints
from envoy_data_plane.google.protobuf import Any

from controlplane.model.plan import (
    ClusterPlan,
    ClusterShare,
    FleetPlan,
    ListenerPlan,
    RoutePlan,
    WeightedEndpoint,
)
from controlplane.model.rollout import TOTAL_PARTS, HeaderMatch
from controlplane.model.strategy import Locality, Strategy
from controlplane.model.topology import Endpoint
from controlplane.xds.build.endpoints import lb_endpoint

LISTENER = ListenerPlan(name="trimtab", address="127.0.0.1", port=10_000)
STRATEGY = Strategy(schema=1, version="1.0.0")


def endpoint(index: int, *, zone: str = "", region: str = "") -> Endpoint:
    return Endpoint(address=f"10.0.{index // 250}.{index % 250 + 1}", port=8000, zone=zone, region=region)


def weighted(endpoints: Sequence[Endpoint], *weights: int) -> tuple[WeightedEndpoint, ...]:
    """Join endpoints and weights (100 each by default), sorted by id."""
    given = weights or (100,) * len(endpoints)
    pairs = (WeightedEndpoint(each, weight) for each, weight in zip(endpoints, given, strict=True))
    return tuple(sorted(pairs, key=lambda pair: pair.endpoint.id))


def cluster_plan(
    name: str = "llama",
    endpoints: tuple[WeightedEndpoint, ...] = (),
    strategy: Strategy = STRATEGY,
) -> ClusterPlan:
    return ClusterPlan(name=name, service=name.partition("/")[0], strategy=strategy, endpoints=endpoints)


def fleet_plan(*clusters: ClusterPlan, routes: tuple[RoutePlan, ...] | None = None) -> FleetPlan:
    """Make a plan; by default with one plain route for each cluster."""
    if routes is None:
        routes = tuple(
            RoutePlan(each.service, each.strategy, (), (ClusterShare(each.name, TOTAL_PARTS),))
            for each in clusters
        )
    return FleetPlan(listener=LISTENER, clusters=clusters, routes=routes)


def canary_route(
    strategy: Strategy = STRATEGY, *, canary_parts: int, header: str = "x-canary"
) -> RoutePlan:
    """Split `llama` between `llama/canary` and `llama`, with a header that forces the canary."""
    return RoutePlan(
        service="llama",
        strategy=strategy,
        domains=(),
        split=(
            ClusterShare("llama/canary", canary_parts),
            ClusterShare("llama", TOTAL_PARTS - canary_parts),
        ),
        matches=(HeaderMatch(header=header, value="always"), HeaderMatch(header=header, value="")),
        match_cluster="llama/canary",
    )


def library_assignment(plan: ClusterPlan) -> bytes:
    """Encode a load assignment with the library alone, in one piece, wrapped as a resource.

    Knows nothing of the builder's grouping: for plans whose priorities have no gap.
    """
    locality: Locality = plan.strategy.locality
    ordered = sorted(plan.endpoints, key=lambda each: each.endpoint.id)
    places = {(each.endpoint.zone, each.endpoint.region) for each in ordered}
    is_weighted = bool(locality.weights) and all(zone in locality.weights for zone, _ in places)
    regions = {zone: sorted({region for other, region in places if other == zone}) for zone, _ in places}
    groups: dict[tuple[int, str, str], list[WeightedEndpoint]] = {}
    for each in ordered:
        zone, region = each.endpoint.zone, each.endpoint.region
        if is_weighted and len(regions[zone]) > 1:
            region = ""
        groups.setdefault((locality.priorities.get(zone, 0), zone, region), []).append(each)
    message = ClusterLoadAssignment(
        cluster_name=plan.name,
        endpoints=[
            LocalityLbEndpoints(
                locality=EnvoyLocality(region=region, zone=zone) if zone or region else None,
                lb_endpoints=[lb_endpoint(each.endpoint, each.weight) for each in members],
                load_balancing_weight=locality.weights.get(zone),
                priority=priority,
            )
            for (priority, zone, region), members in sorted(groups.items())
        ],
    )
    return bytes(Any.pack(message))
