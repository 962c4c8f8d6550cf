"""Load by priority, and panic: integer arithmetic of Envoy's ``load_balancer_impl.cc``.

Envoy's defaults are assumed: overprovisioning factor 140, panic threshold 50 %, health by host count.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.core.maglev.hosts import EdsHealth, Host

_OVERPROVISIONING = 140
_PANIC_BELOW_PERCENT = 50.0
_ALL = 100


@dataclass(frozen=True, slots=True)
class PriorityLoad:
    """One priority: percent of requests chosen as healthy, as degraded, and whether it panics."""

    healthy: int
    degraded: int
    is_panic: bool


@dataclass(frozen=True, slots=True)
class _Counts:
    everyone: int
    """All hosts, draining ones too."""
    counted: int
    healthy: int
    degraded: int

    def availability(self, hosts: int) -> int:
        return min(_ALL, _OVERPROVISIONING * hosts // self.counted) if self.counted else 0

    @property
    def is_below_panic_threshold(self) -> bool:
        if not self.counted:
            return True
        # Two divisions, then the sum, as Envoy does: the last bit decides at exactly 50 %.
        healthy = 100.0 * self.healthy / self.counted
        degraded = 100.0 * self.degraded / self.counted
        return healthy + degraded < _PANIC_BELOW_PERCENT


def priority_loads(levels: Sequence[Sequence[Host]]) -> tuple[PriorityLoad, ...]:
    """Distribute 100 % over the priorities; `levels` are the hosts of each, 0 first, maybe empty."""
    counts = [_count(hosts) for hosts in levels]
    healthy_availability = [count.availability(count.healthy) for count in counts]
    degraded_availability = [count.availability(count.degraded) for count in counts]
    total = min(_ALL, sum(healthy_availability) + sum(degraded_availability))
    panics = [total < _ALL and count.is_below_panic_threshold for count in counts]
    if all(panics):
        return _loads_in_total_panic(counts)
    healthy, rest = _distribute(healthy_availability, total, _ALL)
    degraded, rest = _distribute(degraded_availability, total, rest)
    receiving, availability = (
        (healthy, healthy_availability) if any(healthy_availability) else (degraded, degraded_availability)
    )
    receiving[_first_positive(availability)] += rest
    return tuple(PriorityLoad(*level) for level in zip(healthy, degraded, panics, strict=True))


def choose_priority(loads: Sequence[PriorityLoad], request_hash: int) -> int:
    """Pick the priority of a request: its hash modulo 100 against cumulated loads, healthy ones first."""
    position = request_hash % _ALL + 1
    figures = [load.healthy for load in loads] + [load.degraded for load in loads]
    for index, cumulated in enumerate(itertools.accumulate(figures)):
        if position <= cumulated:
            return index % len(loads)
    raise AssertionError("loads sum to 100")  # pragma: no cover - priority_loads sees to it


def _count(hosts: Sequence[Host]) -> _Counts:
    by_health = [host.health for host in hosts]
    return _Counts(
        everyone=len(hosts),
        counted=len(hosts) - by_health.count(EdsHealth.DRAINING),
        healthy=by_health.count(EdsHealth.HEALTHY),
        degraded=by_health.count(EdsHealth.DEGRADED),
    )


def _distribute(availability: Sequence[int], total: int, load: int) -> tuple[list[int], int]:
    """Give each priority what it can take, highest first; returns the loads and what is left over."""
    loads = []
    for available in availability:
        loads.append(min(load, available * _ALL // total))
        load -= loads[-1]
    return loads, load


def _loads_in_total_panic(counts: Sequence[_Counts]) -> tuple[PriorityLoad, ...]:
    """All priorities panic: load goes by the number of hosts, whatever their health."""
    hosts = sum(count.everyone for count in counts)
    loads = [_ALL * count.everyone // hosts if hosts else 0 for count in counts]
    first = _first_positive([count.everyone for count in counts]) if hosts else 0
    loads[first] += _ALL - sum(loads)
    return tuple(PriorityLoad(healthy=load, degraded=0, is_panic=True) for load in loads)


def _first_positive(figures: Sequence[int]) -> int:
    return next(index for index, figure in enumerate(figures) if figure > 0)
