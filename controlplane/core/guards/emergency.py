"""Emergencies: endpoints that fail requests or whose GPU is broken go to the floor at once.

Speed is not worth anything there: a host that answers errors answers fast, attracts traffic from any
law that likes low latency, and must not keep it for the time constants of smoothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from controlplane.core.columns import Bools, outcomes
from controlplane.core.guards.context import GuardContext
from controlplane.model.decision import Stage
from controlplane.model.signals import Floats, Signal, SignalTable
from controlplane.model.strategy import Guards
from controlplane.model.topology import EndpointId

APPLICATION_XIDS: Final = (13.0, 31.0, 43.0, 45.0, 68.0, 109.0)
"""XID errors that a program causes; the GPU is still healthy. NVIDIA's Kubernetes device plugin
ignores the same ones. The metric keeps the last code for good, so these must not count for ever."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """Endpoints under emergency: until when (decision time), and why."""

    until: Mapping[EndpointId, float]
    reasons: Mapping[EndpointId, str]


def find_penalties(
    table: SignalTable,
    guards: Guards,
    window_seconds: float,
    before: Mapping[EndpointId, float],
    now: float,
) -> Penalties:
    """Find new emergencies and keep old ones until their deadline.

    A penalty lasts one signal window: until then, the errors that caused it are still in the figures.
    Its deadline is the later one of the old and the new.
    """
    counted = outcomes(table, window_seconds)
    is_failing = (counted.requests >= guards.min_samples) & (counted.ratio >= guards.emergency_error_ratio)
    fault = table.column(Signal.GPU_FAULT)
    is_broken = (fault > 0) & ~np.isin(fault, APPLICATION_XIDS)
    until: dict[EndpointId, float] = {}
    reasons: dict[EndpointId, str] = {}
    if before:
        for endpoint in table.endpoints:
            if before.get(endpoint, now) > now:
                until[endpoint] = before[endpoint]
                reasons[endpoint] = f"emergency for another {before[endpoint] - now:.0f} s"
    for row in np.flatnonzero(is_failing | is_broken):
        endpoint = table.endpoints[row]
        until[endpoint] = max(until.get(endpoint, now), now + window_seconds)
        reasons[endpoint] = (
            f"GPU fault (XID {fault[row]:.0f})"
            if is_broken[row]
            else f"{counted.ratio[row]:.0%} of {counted.requests[row]:.0f} requests failed"
        )
    return Penalties(until, reasons)


def emergency(context: GuardContext, shares: Floats) -> Stage:
    """Put endpoints under emergency at the floor, past smoothing and step limit; refill the others."""
    if not context.is_penalised.any():
        return Stage("emergency", shares)
    lowered = context.with_normal(shares[~context.is_penalised])
    return Stage("emergency", lowered, reasons=context.penalty_reasons)


def penalised_rows(endpoints: tuple[EndpointId, ...], penalties: Penalties) -> Bools:
    """Mark the rows of endpoints under emergency."""
    if not penalties.until:
        return np.zeros(len(endpoints), dtype=np.bool_)
    return np.array([endpoint in penalties.until for endpoint in endpoints], dtype=np.bool_)
