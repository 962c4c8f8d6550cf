"""Hosts as Envoy's load balancer sees them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from controlplane.model.strategy import Locality
from controlplane.model.topology import Endpoint, Health, ServiceTopology
from controlplane.model.weights import WeightVector

MAX_PRIORITY = 127
"""Trimtab's bound; Envoy itself refuses an endpoint above priority 128."""


class EdsHealth(enum.StrEnum):
    """An endpoint's `health_status`, as far as Maglev tells them apart."""

    HEALTHY = "healthy"
    """``HEALTHY`` and ``UNKNOWN``: gets traffic."""
    DEGRADED = "degraded"
    """Counts as available, yet Maglev sends it nothing outside panic."""
    UNHEALTHY = "unhealthy"
    """``UNHEALTHY`` and ``TIMEOUT``: no traffic, and pushes towards panic."""
    DRAINING = "draining"
    """No traffic, and not counted at all: the way to take a host out."""


_EDS_HEALTH = {
    Health.HEALTHY: EdsHealth.HEALTHY,
    Health.UNHEALTHY: EdsHealth.UNHEALTHY,
    Health.DRAINING: EdsHealth.DRAINING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of a cluster: what decides its slots.

    `key` is what Envoy hashes: the ``envoy.lb`` metadata string `hash_key` if there is one, else
    ``ip:port``. `zone` names its locality.
    """

    key: str
    weight: int = 1
    zone: str = ""
    priority: int = 0
    health: EdsHealth = EdsHealth.HEALTHY

    def __post_init__(self) -> None:
        """Check what Envoy would refuse.

        Raises:
            ValueError: if the key is empty, the weight below 1, or the priority out of range.
        """
        if not self.key:
            msg = "a host needs a key"
            raise ValueError(msg)
        if self.weight < 1:
            msg = f"weight {self.weight} of `{self.key}` is below 1"
            raise ValueError(msg)
        if not 0 <= self.priority <= MAX_PRIORITY:
            msg = f"priority {self.priority} of `{self.key}` is not between 0 and {MAX_PRIORITY}"
            raise ValueError(msg)


def hosts_of(
    topology: ServiceTopology, weights: WeightVector, locality: Locality | None = None
) -> tuple[Host, ...]:
    """Describe a service's endpoints as hosts, in the topology's order.

    Raises:
        KeyError: if an endpoint has no weight.
    """
    zones = locality or Locality()
    by_id = weights.as_mapping()
    return tuple(_host(endpoint, by_id[endpoint.id], zones) for endpoint in topology.endpoints)


def _host(endpoint: Endpoint, weight: int, zones: Locality) -> Host:
    return Host(
        key=endpoint.maglev_key,
        weight=weight,
        zone=endpoint.zone,
        priority=zones.priorities.get(endpoint.zone, 0),
        health=_EDS_HEALTH[endpoint.health],
    )
