"""From decisions and rollouts to what Envoy should do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.core.acceptance import domains_of
from controlplane.core.slo import subsets
from controlplane.model.plan import (
    ClusterPlan,
    ClusterShare,
    FleetPlan,
    ListenerPlan,
    RoutePlan,
    WeightedEndpoint,
)
from controlplane.model.rollout import TOTAL_PARTS, CanarySpec, CanaryState
from controlplane.model.strategy import Strategy
from controlplane.model.topology import ServiceTopology
from controlplane.model.weights import WeightVector


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """One service's share of the plan. `weights` covers exactly the endpoints of `topology`."""

    strategy: Strategy
    topology: ServiceTopology
    weights: WeightVector
    canary_spec: CanarySpec | None = None
    canary_state: CanaryState | None = None


def plan_fleet(services: Iterable[ServicePlan], listener: ListenerPlan) -> FleetPlan:
    """Join the services' plans into the one that a group of Envoys gets, sorted by name."""
    clusters: list[ClusterPlan] = []
    routes: list[RoutePlan] = []
    for service in services:
        clusters.extend(_clusters(service))
        routes.append(_route(service))
    return FleetPlan(
        listener,
        tuple(sorted(clusters, key=lambda cluster: cluster.name)),
        tuple(sorted(routes, key=lambda route: route.service)),
    )


def canary_cluster_name(service: str) -> str:
    """Name the cluster of a service's canary subset."""
    return f"{service}.canary"


def _clusters(plan: ServicePlan) -> list[ClusterPlan]:
    service = plan.topology.service
    if plan.canary_spec is None:
        return [_cluster(service, plan, set(plan.topology.ids))]
    canary, baseline = subsets(plan.topology, plan.canary_spec)
    return [
        _cluster(service, plan, set(baseline)),
        _cluster(canary_cluster_name(service), plan, set(canary)),
    ]


def _cluster(name: str, plan: ServicePlan, members: set[str]) -> ClusterPlan:
    weights = plan.weights.as_mapping()
    endpoints = tuple(
        WeightedEndpoint(endpoint, weights[endpoint.id])
        for endpoint in plan.topology.endpoints
        if endpoint.id in members
    )
    return ClusterPlan(name, plan.topology.service, plan.strategy, endpoints)


def _route(plan: ServicePlan) -> RoutePlan:
    service = plan.topology.service
    domains = domains_of(service, plan.strategy)
    if plan.canary_spec is None or plan.canary_state is None:
        return RoutePlan(service, plan.strategy, domains, (ClusterShare(service, TOTAL_PARTS),))
    parts = plan.canary_state.canary_parts
    canary = canary_cluster_name(service)
    return RoutePlan(
        service,
        plan.strategy,
        domains,
        # Canary first: Envoy picks by `hash % total` over intervals in list order, so a rising weight
        # only ever moves requests from baseline to canary.
        (ClusterShare(canary, parts), ClusterShare(service, TOTAL_PARTS - parts)),
        matches=plan.canary_spec.match if parts else (),
        match_cluster=canary if parts and plan.canary_spec.match else "",
    )
