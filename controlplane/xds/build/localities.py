"""Localities and priorities: how the endpoints of one cluster are grouped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.model.plan import ClusterPlan
from controlplane.model.topology import Endpoint


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """One ``LocalityLbEndpoints``. Groups sort as they are encoded: by priority, zone, region.

    `weight` is 0 if the strategy gives the zone none.
    """

    priority: int
    zone: str
    region: str
    weight: int


def is_locality_weighted(plan: ClusterPlan) -> bool:
    """Tell whether zones share the traffic by their own weights.

    Only when every zone that has endpoints has a weight: to Envoy a zone without one is worth
    nothing, and its endpoints would get no request at all.
    """
    weights = plan.strategy.locality.weights
    return bool(weights) and all(each.endpoint.zone in weights for each in plan.endpoints)


class Grouping:
    """Assigns each endpoint of one plan to its group.

    Priorities are closed up: 0, 2 becomes 0, 1. Envoy's EDS documentation asks for a range without
    gaps, and gRPC's own xDS client refuses one with them, as would arise when the first zone loses
    its last endpoint. Load moves the same way either way.

    When zones are weighted, a zone is one group even if its endpoints name several regions:
    two groups would each get the zone's weight.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        locality = plan.strategy.locality
        self._weights = locality.weights
        places = {(each.endpoint.zone, each.endpoint.region) for each in plan.endpoints}
        by_zone = {zone: locality.priorities.get(zone, 0) for zone, _ in places}
        self._priorities = _closed_up(by_zone)
        self._regions = _single_regions(sorted(places)) if is_locality_weighted(plan) else {}
        self._groups: dict[tuple[str, str], Group] = {}

    def group_of(self, endpoint: Endpoint) -> Group:
        """Find the group of an endpoint."""
        place = (endpoint.zone, endpoint.region)
        group = self._groups.get(place)
        if group is None:
            zone, region = place
            group = self._groups[place] = Group(
                priority=self._priorities[zone],
                zone=zone,
                region=self._regions.get(zone, region),
                # Given even while `is_locality_weighted` is false, where Envoy ignores it: when it
                # becomes true, the cluster changes before its endpoints do, and weights must be there.
                weight=self._weights.get(zone, 0),
            )
        return group


def _closed_up(priorities: Mapping[str, int]) -> dict[str, int]:
    levels = {level: index for index, level in enumerate(sorted(set(priorities.values())))}
    return {zone: levels[level] for zone, level in priorities.items()}


def _single_regions(places: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Map each zone to its region, or to none if its endpoints disagree."""
    regions: dict[str, str] = {}
    for zone, region in places:
        regions[zone] = region if regions.get(zone, region) == region else ""
    return regions
