"""From a request's hash to a host, and to the canary or stable cluster before that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.core.maglev.fill import Fill, fill_in_turn
from controlplane.core.maglev.hosts import Host
from controlplane.core.maglev.priorities import PriorityLoad, choose_priority, priority_loads
from controlplane.core.maglev.table import Table, build_table
from controlplane.core.maglev.weights import eligible_hosts, flat_weights, zone_weights
from controlplane.model.plan import ClusterShare

_HASHES = 2**64


@dataclass(frozen=True, slots=True, eq=False)
class Balancer:
    """One cluster's Maglev: a load and a table for each priority.

    A table is `None` where no host is eligible: Envoy answers 503 to requests of that priority.
    """

    loads: tuple[PriorityLoad, ...]
    tables: tuple[Table | None, ...]

    def pick(self, request_hash: int, *, attempt: int = 0) -> str | None:
        """Tell the key of the host that gets a request; `None` means 503.

        `attempt` counts retries that a retry host predicate (``previous_hosts``) refused: Envoy
        inverts part of the hash for them, within the priority of the first try.
        """
        table = self.tables[choose_priority(self.loads, request_hash)]
        if table is None:
            return None
        return table.owner(request_hash ^ (_HASHES - attempt) if attempt else request_hash)


def build_balancer(
    hosts: Sequence[Host],
    *,
    table_size: int,
    zones: Mapping[str, int] | None = None,
    fill: Fill = fill_in_turn,
) -> Balancer:
    """Build what Envoy holds for a cluster with a typed Maglev policy.

    `zones` are locality weights (`locality_weighted_lb_config`); without them zones play no part.

    Raises:
        ValueError: as `build_table` and `flat_weights`, for any priority.
    """
    levels: list[list[Host]] = [[] for _ in range(max((host.priority for host in hosts), default=0) + 1)]
    for host in hosts:
        levels[host.priority].append(host)
    loads = priority_loads(levels)
    tables = tuple(
        _build_level(level, load, table_size=table_size, zones=zones, fill=fill)
        for level, load in zip(levels, loads, strict=True)
    )
    return Balancer(loads, tables)


def _build_level(
    level: Sequence[Host],
    load: PriorityLoad,
    *,
    table_size: int,
    zones: Mapping[str, int] | None,
    fill: Fill,
) -> Table | None:
    hosts = eligible_hosts(level, is_panic=load.is_panic)
    if zones:
        hosts, weights = zone_weights(hosts, zones, sorted({host.zone for host in level}))
    else:
        weights = flat_weights(hosts)
    if not hosts:
        return None
    return build_table([host.key for host in hosts], weights, table_size, fill=fill)


def canary_cluster(request_hash: int, split: Sequence[ClusterShare]) -> str:
    """Tell which cluster of a `weighted_clusters` with `use_hash_policy` gets a request.

    Envoy takes the hash modulo the total over the intervals in list order. Requests without a hash
    are split at random, so there is nothing to tell for them.

    Raises:
        ValueError: if the total is 0.
    """
    total = sum(share.parts for share in split)
    if total < 1:
        msg = "a split needs at least one part"
        raise ValueError(msg)
    position = request_hash % total
    for share in split:
        position -= share.parts
        if position < 0:
            return share.cluster
    raise AssertionError("the parts sum to the total")  # pragma: no cover - arithmetic
