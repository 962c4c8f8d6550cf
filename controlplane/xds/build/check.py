"""What Envoy would refuse, crash on, or silently misread: caught before anything is sent."""

from __future__ import annotations

import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from controlplane.errors import InvalidPlan, OversizedResource
from controlplane.model.plan import ClusterPlan, FleetPlan, RoutePlan
from controlplane.model.resources import Resource
from controlplane.model.strategy import MAX_TABLE_SIZE
from controlplane.model.topology import Endpoint
from controlplane.model.weights import MAX_TOTAL_WEIGHT

MAX_PRIORITY = 127
"""Envoy refuses an assignment whose priority is above 128; the document format stops at 127."""


class Keyed(Protocol):
    """An endpoint's identity, as Envoy sees it."""

    @property
    def id(self) -> str:
        """``ip:port``."""
        ...

    @property
    def maglev_key(self) -> str:
        """What Maglev hashes."""
        ...


def check_address(service: str, endpoint: Endpoint) -> None:
    """Refuse an address in another spelling than the one Envoy itself uses.

    Envoy hashes a host by the address *it* prints, so another spelling would have another place in
    our predicted table; and one address in two spellings would be one host to Envoy.

    Raises:
        InvalidPlan: if the address is not in canonical form (RFC 5952 for IPv6).
    """
    family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
    try:
        canonical = socket.inet_ntop(family, socket.inet_pton(family, endpoint.address))
    except OSError:
        canonical = ""
    if canonical != endpoint.address:
        hint = f"write `{canonical}`" if canonical else "Envoy takes no scope or zone here"
        raise InvalidPlan(service, f"address `{endpoint.address}` is not in canonical form: {hint}")


def check_assignment(plan: ClusterPlan, identities: Sequence[Keyed]) -> None:
    """Refuse an assignment that Envoy would refuse, or read differently from one process to the next.

    `identities` are the endpoints' identities, in the plan's order. A repeated address is dropped
    silently by Envoy, and equal Maglev keys are ordered by memory address.

    Raises:
        InvalidPlan: names the service and the first thing found.
    """
    count = len(identities)
    if len({each.id for each in identities}) != count:
        twice = _first_repeated(each.id for each in identities)
        raise InvalidPlan(plan.service, f"cluster `{plan.name}` has endpoint `{twice}` more than once")
    if len({each.maglev_key for each in identities}) != count:
        twice = _first_repeated(each.maglev_key for each in identities)
        raise InvalidPlan(plan.service, f"cluster `{plan.name}` has Maglev key `{twice}` more than once")
    if min((each.weight for each in plan.endpoints), default=1) < 1:
        raise InvalidPlan(plan.service, f"cluster `{plan.name}` has a weight below 1")
    _check_table(plan)
    # The whole sum is the bound of every priority's sum; only beyond it is the closer look needed.
    if sum(each.weight for each in plan.endpoints) > MAX_TOTAL_WEIGHT:
        _check_sums(plan, "endpoint", ((each.endpoint.zone, each.weight) for each in plan.endpoints))
    if plan.strategy.locality.weights:
        weights = plan.strategy.locality.weights
        zones = {each.endpoint.zone for each in plan.endpoints}
        _check_sums(plan, "zone", ((zone, weights.get(zone, 0)) for zone in zones))
    _check_priorities(plan)


def _check_table(plan: ClusterPlan) -> None:
    """Check the table: Envoy crashes on one slot, and gives hosts beyond the last slot nothing."""
    size = plan.strategy.maglev.table_size
    if not 1 < size <= MAX_TABLE_SIZE:
        raise InvalidPlan(plan.service, f"table_size {size} is not between 2 and {MAX_TABLE_SIZE}")
    if len(plan.endpoints) > size:
        raise InvalidPlan(plan.service, f"table_size {size} is less than {len(plan.endpoints)} endpoints")


def _check_sums(plan: ClusterPlan, what: str, weights: Iterable[tuple[str, int]]) -> None:
    sums: defaultdict[int, int] = defaultdict(int)
    for zone, weight in weights:
        sums[plan.strategy.locality.priorities.get(zone, 0)] += weight
    for priority, total in sorted(sums.items()):
        if total > MAX_TOTAL_WEIGHT:
            reason = f"{what} weights of priority {priority} in cluster `{plan.name}` sum to {total}"
            raise InvalidPlan(plan.service, f"{reason}, above {MAX_TOTAL_WEIGHT}")


def _check_priorities(plan: ClusterPlan) -> None:
    for zone, priority in sorted(plan.strategy.locality.priorities.items()):
        if not 0 <= priority <= MAX_PRIORITY:
            raise InvalidPlan(
                plan.service, f"priority {priority} of zone `{zone}` is not in 0..{MAX_PRIORITY}"
            )


def check_plan(plan: FleetPlan) -> None:
    """Refuse a plan whose names collide or whose routes lead to clusters it does not have.

    Raises:
        InvalidPlan: names the service and the first thing found.
    """
    clusters: set[str] = set()
    for cluster in plan.clusters:
        if not cluster.name or cluster.name in clusters:
            raise InvalidPlan(cluster.service, f"cluster name `{cluster.name}` is empty or taken")
        clusters.add(cluster.name)
    hosts: set[str] = set()
    domains: dict[str, str] = {}
    for route in plan.routes:
        if not route.service or route.service in hosts:
            raise InvalidPlan(route.service, f"route name `{route.service}` is empty or taken")
        hosts.add(route.service)
        _check_split(route, clusters)
        _claim_domains(route, domains)


def _check_split(route: RoutePlan, clusters: set[str]) -> None:
    names = [share.cluster for share in route.split]
    needed = [*names, *([route.match_cluster] if route.matches else [])]
    for name in needed:
        if name not in clusters:
            raise InvalidPlan(route.service, f"the route needs cluster `{name}`, which is not in the plan")
    if len(set(names)) != len(names):
        raise InvalidPlan(route.service, f"the split has cluster `{_first_repeated(names)}` more than once")
    parts = [share.parts for share in route.split]
    if not 0 < sum(parts) <= MAX_TOTAL_WEIGHT or min(parts) < 0:
        raise InvalidPlan(route.service, f"the split's parts {parts} are negative, all zero or too many")


def domains_of(route: RoutePlan) -> tuple[str, ...]:
    """Give a route's domains, sorted and once each; by default the service's name, with any port."""
    return tuple(sorted(set(route.domains))) or (route.service, f"{route.service}:*")


def _claim_domains(route: RoutePlan, taken: dict[str, str]) -> None:
    """Refuse a domain twice: Envoy compares in lower case, and refuses the whole table."""
    for domain in domains_of(route):
        owner = taken.setdefault(domain.lower(), route.service)
        if owner != route.service:
            raise InvalidPlan(route.service, f"domain `{domain}` belongs to service `{owner}` already")


def check_size(resource: Resource, limit_bytes: int) -> None:
    """Refuse a resource above the limit.

    Raises:
        OversizedResource: names the resource, its size and the limit.
    """
    if len(resource.body) > limit_bytes:
        raise OversizedResource(resource.name, len(resource.body), limit_bytes)


def _first_repeated(names: Iterable[str]) -> str:
    return next(name for name, count in sorted(Counter(names).items()) if count > 1)
