"""Normalised weights: the doubles Envoy fills its table with, in Envoy's order of operations.

The last bit matters: Maglev compares ``t * w`` with a running sum of the largest weight, so two ways
of computing the same ratio can give a slot to another host. Source of the formulas:
``normalizeHostWeights`` and ``normalizeLocalityWeights`` in Envoy's ``thread_aware_lb_impl.cc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from controlplane.core.maglev.hosts import EdsHealth, Host
from controlplane.model.signals import Floats
from controlplane.model.weights import MAX_TOTAL_WEIGHT


def eligible_hosts(hosts: Sequence[Host], *, is_panic: bool) -> tuple[Host, ...]:
    """Select the hosts of one priority that get slots: the healthy ones, or all in panic."""
    return tuple(host for host in hosts if is_panic or host.health is EdsHealth.HEALTHY)


def flat_weights(hosts: Sequence[Host]) -> Floats:
    """Normalise without localities: ``weight * 1.0 / sum``, shape (hosts,).

    `hosts` are the eligible hosts of one priority.

    Raises:
        ValueError: if the weights sum to more than Envoy accepts.
    """
    return _within_locality(hosts, share=1.0)


def zone_weights(
    hosts: Sequence[Host], weights: Mapping[str, int], present: Sequence[str]
) -> tuple[tuple[Host, ...], Floats]:
    """Normalise with locality weights; hosts of a zone without weight get no slot and are left out.

    A zone's share is ``weight / sum`` over the zones `present` in the priority, whether or not they
    have an eligible host: shares are not scaled by availability, so one survivor carries its zone's
    whole share, while a zone without survivors drops out.

    Returns the hosts that take part, grouped by zone in the order of `present`, and their weights,
    shape (hosts,). Both are empty if no zone has a weight.

    Raises:
        ValueError: if a sum of weights is larger than Envoy accepts.
    """
    total = _checked_sum([weights.get(zone, 0) for zone in present])
    taking_part: list[Host] = []
    normalised: list[Floats] = []
    for zone in present:
        members = [host for host in hosts if host.zone == zone]
        if members and weights.get(zone, 0) > 0:
            taking_part += members
            normalised.append(_within_locality(members, share=weights[zone] / total))
    return tuple(taking_part), np.concatenate(normalised) if normalised else np.empty(0)


def _within_locality(hosts: Sequence[Host], *, share: float) -> Floats:
    total = _checked_sum([host.weight for host in hosts])
    return np.array([host.weight * share / total for host in hosts], dtype=np.float64)


def _checked_sum(weights: Sequence[int]) -> int:
    total = sum(weights)
    if total > MAX_TOTAL_WEIGHT:
        msg = f"weights sum to {total}, Envoy accepts at most {MAX_TOTAL_WEIGHT}"
        raise ValueError(msg)
    return total
