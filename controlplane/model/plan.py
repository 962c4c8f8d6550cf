"""What Envoy should do, before it is protobuf: the input of `xds.build`."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model.rollout import HeaderMatch
from controlplane.model.strategy import Strategy
from controlplane.model.topology import Endpoint, ServiceName


@dataclass(frozen=True, slots=True)
class WeightedEndpoint:
    """An endpoint with the weight Envoy gets (at least 1)."""

    endpoint: Endpoint
    weight: int


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """One Envoy cluster with its load assignment. The EDS name equals the cluster name."""

    name: str
    service: ServiceName
    strategy: Strategy
    endpoints: tuple[WeightedEndpoint, ...]
    """Sorted by endpoint id; may be empty (the assignment is then empty)."""


@dataclass(frozen=True, slots=True)
class ClusterShare:
    """A cluster's part of a route's traffic, of the route's constant total."""

    cluster: str
    parts: int


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """One virtual host of the route table.

    `split` is in the order Envoy must see it (canary first); its parts sum to a constant total and
    one share may be 0. `matches` send requests to `match_cluster` before the split is asked.
    """

    service: ServiceName
    strategy: Strategy
    domains: tuple[str, ...]
    split: tuple[ClusterShare, ...]
    matches: tuple[HeaderMatch, ...] = ()
    match_cluster: str = ""


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """The one listener all services share."""

    name: str
    address: str
    port: int
    route_config: str = "trimtab"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Everything one group of Envoys should have. Clusters and routes are sorted by name."""

    listener: ListenerPlan
    clusters: tuple[ClusterPlan, ...]
    routes: tuple[RoutePlan, ...]
