"""Which endpoints are taken from discovery, and when.

Discovery can be wrong in a way that no single endpoint can: a catalog that restarts empty, a health
check that fails everywhere at once. Losing more than half of a service in one step is therefore held
for a while, and flagged, before it is believed (fault R12); a store that started over is not believed
until it offers endpoints again (R11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from controlplane.model.documents import TopologyOffer
from controlplane.model.topology import Endpoint, ServiceTopology, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Endpoints in force, and which services are being held since when (decision time)."""

    topology: Topology = field(default_factory=Topology)
    held_since: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


def admit(membership: Membership, offer: TopologyOffer, *, now: float, hold_seconds: float) -> Membership:
    """Fold what discovery offers into the endpoints in force.

    Endpoints that are new are taken at once, even while a loss is held. Services that the offer does
    not mention leave.
    """
    services, held = [], {}
    for offered in offer.topology.services:
        current = membership.topology.get(offered.service)
        if current is None or not _is_sudden_loss(current, offered):
            services.append(offered)
            continue
        # The hold begins when endpoints come back to a store that started over: they come one by one,
        # and the first of them must not stand for all.
        is_wiped = offer.is_reset and not offered.endpoints
        since = now if is_wiped else membership.held_since.get(offered.service, now)
        if not is_wiped and now - since >= hold_seconds:
            services.append(offered)
            continue
        held[offered.service] = since
        services.append(_union(current, offered))
    topology = Topology(tuple(services), offer.topology.problems)
    return Membership(topology=topology, held_since=held)


def _is_sudden_loss(current: ServiceTopology, offered: ServiceTopology) -> bool:
    kept = len(set(current.ids) & set(offered.ids))
    return 2 * kept < len(current.endpoints) and 2 * len(offered.endpoints) < len(current.endpoints)


def _union(current: ServiceTopology, offered: ServiceTopology) -> ServiceTopology:
    """Join both; where an id or a Maglev key meets itself, what is offered now wins."""
    keys = {endpoint.maglev_key for endpoint in offered.endpoints}
    joined: dict[str, Endpoint] = {
        endpoint.id: endpoint for endpoint in current.endpoints if endpoint.maglev_key not in keys
    }
    joined.update({endpoint.id: endpoint for endpoint in offered.endpoints})
    return ServiceTopology(current.service, tuple(joined[id_] for id_ in sorted(joined)))
