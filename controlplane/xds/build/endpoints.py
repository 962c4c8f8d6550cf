"""Load assignments: the one resource that changes all the time, so the one that must be cheap.

The library needs about 0.2 ms for one endpoint. What of it stays the same between two weights
(address, health, hash key) is therefore encoded once and kept; a weight change appends the weight,
which is the last field of ``LbEndpoint``, and joins the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envoy_data_plane.envoy.config.core.v3 import Address, HealthStatus, Metadata, SocketAddress
from envoy_data_plane.envoy.config.core.v3 import Locality as EnvoyLocality
from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints
from envoy_data_plane.envoy.config.endpoint.v3 import Endpoint as EnvoyEndpoint
from envoy_data_plane.google.protobuf import Struct, Value

from controlplane.model.plan import ClusterPlan
from controlplane.model.topology import Endpoint, EndpointId, Health
from controlplane.xds.build.check import check_address, check_assignment
from controlplane.xds.build.encode import embed, varint
from controlplane.xds.build.localities import Group, Grouping

_HEALTH: Mapping[Health, HealthStatus] = {
    Health.HEALTHY: HealthStatus.HEALTHY,
    Health.UNHEALTHY: HealthStatus.UNHEALTHY,
    Health.DRAINING: HealthStatus.DRAINING,
}

_WEIGHT_TAG = b"\x22"
"""Field 4 of ``LbEndpoint``, length-delimited: a ``UInt32Value``."""
_WRAPPED_TAG = b"\x08"
"""Field 1 of ``UInt32Value``, a varint."""
_LB_ENDPOINT_TAG = b"\x12"
"""Field 2 of ``LocalityLbEndpoints``."""
_LOCALITY_NUMBER = 2
"""Number of ``endpoints`` in ``ClusterLoadAssignment``."""
_VARINTS = tuple(varint(number) for number in range(1 << 14))
"""Lengths and most weights, ready made: up to two bytes each."""


@dataclass(slots=True)
class FixedPart:
    """One endpoint without its weight, encoded. `health` and `hash_key` are what `body` was made of."""

    id: EndpointId
    maglev_key: str
    health: Health
    hash_key: str
    body: bytes


def lb_endpoint(endpoint: Endpoint, weight: int | None = None) -> LbEndpoint:
    """Describe one endpoint. Without `weight` this is the fixed part."""
    address = SocketAddress(address=endpoint.address, port_value=endpoint.port)
    return LbEndpoint(
        endpoint=EnvoyEndpoint(address=Address(socket_address=address)),
        health_status=_HEALTH[endpoint.health],
        metadata=_maglev_metadata(endpoint.hash_key) if endpoint.hash_key else None,
        load_balancing_weight=weight,
    )


def _maglev_metadata(hash_key: str) -> Metadata:
    """Give the host a Maglev key of its own. Envoy heeds it only as a string under this very path."""
    key = Struct(fields={"hash_key": Value(string_value=hash_key)})
    return Metadata(filter_metadata={"envoy.lb": key})


class AssignmentEncoder:
    """Encodes the load assignment of one cluster, again and again, and remembers its endpoints.

    Holds exactly the endpoints of the last plan, so its memory is bounded by the plan.
    """

    def __init__(self) -> None:
        self._fixed: dict[tuple[str, int], FixedPart] = {}
        self._edges: dict[Group, tuple[bytes, bytes]] = {}

    def encode(self, plan: ClusterPlan) -> bytes:
        """Encode a ``ClusterLoadAssignment``; without endpoints it is a valid, empty one.

        Endpoints are sorted by id within their group, groups by priority, zone and region: the
        order has no meaning to Maglev, and equal content must have equal bytes.

        Raises:
            InvalidPlan: if an address or a key is repeated, or weights are out of Envoy's range.
        """
        parts = self._refresh(plan)
        check_assignment(plan, parts)
        grouping = Grouping(plan)
        members: dict[Group, list[tuple[EndpointId, bytes]]] = {}
        for part, weighted in zip(parts, plan.endpoints, strict=True):
            group = grouping.group_of(weighted.endpoint)
            members.setdefault(group, []).append((part.id, _splice(part.body, weighted.weight)))
        self._edges = {group: self._edges.get(group) or _encoded_edges(group) for group in sorted(members)}
        encoded = [bytes(ClusterLoadAssignment(cluster_name=plan.name))]
        for group, (head, tail) in self._edges.items():
            joined = b"".join(body for _, body in sorted(members[group]))
            encoded.append(embed(_LOCALITY_NUMBER, head + joined + tail))
        return b"".join(encoded)

    def _refresh(self, plan: ClusterPlan) -> list[FixedPart]:
        """Find the fixed part of each endpoint, in the plan's order; encode what is new, drop the rest."""
        known, kept, parts = self._fixed, {}, []
        for weighted in plan.endpoints:
            endpoint = weighted.endpoint
            place = (endpoint.address, endpoint.port)
            part = known.get(place)
            if part is None or part.health is not endpoint.health or part.hash_key != endpoint.hash_key:
                part = _fixed_part(plan, endpoint)
            kept[place] = part
            parts.append(part)
        self._fixed = kept
        return parts


def _encoded_edges(group: Group) -> tuple[bytes, bytes]:
    """Encode what stands before and after the endpoints of a locality."""
    return (
        bytes(LocalityLbEndpoints(locality=_locality(group))),
        bytes(LocalityLbEndpoints(load_balancing_weight=group.weight or None, priority=group.priority)),
    )


def _fixed_part(plan: ClusterPlan, endpoint: Endpoint) -> FixedPart:
    check_address(plan.service, endpoint)
    return FixedPart(
        id=endpoint.id,
        maglev_key=endpoint.maglev_key,
        health=endpoint.health,
        hash_key=endpoint.hash_key,
        body=bytes(lb_endpoint(endpoint)),
    )


def _locality(group: Group) -> EnvoyLocality | None:
    if not group.zone and not group.region:
        return None
    return EnvoyLocality(region=group.region, zone=group.zone)


def _splice(fixed: bytes, weight: int) -> bytes:
    """Complete an endpoint with its weight, as an element of ``LocalityLbEndpoints.lb_endpoints``."""
    number = _VARINTS[weight] if weight < len(_VARINTS) else varint(weight)
    size = len(number) + 1
    length = len(fixed) + size + 2
    prefix = _VARINTS[length] if length < len(_VARINTS) else varint(length)
    return b"".join((_LB_ENDPOINT_TAG, prefix, fixed, _WEIGHT_TAG, _VARINTS[size], _WRAPPED_TAG, number))
