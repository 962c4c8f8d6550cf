"""Smoothing: follow the law slowly, more slowly up than down."""

from __future__ import annotations

from typing import Final

import numpy as np

from controlplane.core.guards.context import GuardContext
from controlplane.model.decision import Stage
from controlplane.model.signals import Floats

SAME_SAMPLE_SECONDS: Final = 0.01
"""Samples less apart than this are the same one."""


def smooth(context: GuardContext, shares: Floats) -> Stage:
    """Move from the last shares towards the new ones by a = 1 - e^(-Δt/τ).

    Δt is the time between *samples*, not between decisions: a sample that was used before moves
    nothing, and a source that scrapes every 15 s smooths as one that scrapes every 5 s. An endpoint
    without samples moves (to the median) by the time between decisions. Emergencies pass, and so do
    laws that read no signals: there is no noise to smooth.
    """
    if context.outage is not None or not context.needs_signals:
        return Stage("smooth", shares)
    base = context.base
    guards = context.guards
    since = _new_seconds(context)
    tau = np.where(shares < base, guards.tau_down_seconds, guards.tau_up_seconds)
    gain = np.where(since > SAME_SAMPLE_SECONDS, -np.expm1(-since / np.maximum(tau, 1e-9)), 0.0)
    moved = context.with_normal((base + gain * (shares - base))[~context.is_penalised])
    is_kept = (gain == 0) & ~context.is_penalised
    if is_kept.all():
        return Stage("smooth", moved, notes=("no new samples",), terms={"gain": gain})
    reasons = context.reasons(is_kept, "same sample as before")
    return Stage("smooth", moved, reasons=reasons, terms={"gain": gain})


def _new_seconds(context: GuardContext) -> Floats:
    """Time that the newest sample adds to what was smoothed before; infinite for the first one."""
    since_sample = np.where(np.isnan(context.smoothed_at), np.inf, context.sampled_at - context.smoothed_at)
    return np.where(np.isnan(context.sampled_at), context.elapsed_seconds, np.maximum(since_sample, 0.0))
