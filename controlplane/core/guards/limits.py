"""Limits on size and speed: clip, step, slow start, floor, panic, dead band.

The floor is hard. Between clip and step, clip wins: when the two cannot both be kept (a document
with narrower bounds arrives, an endpoint comes back from the floor), the weight goes to the nearest
clip bound at once. All three hold on what comes out of `step`, because it fits the shares into the
*intersection* of the bounds instead of applying one after the other.
"""

from __future__ import annotations

import numpy as np

from controlplane.core.columns import Bools, median
from controlplane.core.guards.bounds import equal, fit, is_feasible, scaled
from controlplane.core.guards.context import GuardContext
from controlplane.model.decision import Stage
from controlplane.model.signals import Floats

_AT_BOUND = 1e-9
"""Relative distance at which a share counts as being at a bound."""


def clip(context: GuardContext, shares: Floats) -> Stage:
    """Keep shares within multiples of the mean. Endpoints under emergency neither count nor move."""
    low, high = _clip_bounds(context)
    fitted = _fit_normal(context, shares, low, high)
    guards = context.guards
    reasons = {
        **context.reasons(
            _is_at(fitted, low) & (shares < fitted), f"at least {guards.clip_min_ratio:g} × mean"
        ),
        **context.reasons(
            _is_at(fitted, high) & (shares > fitted), f"at most {guards.clip_max_ratio:g} × mean"
        ),
    }
    return Stage("clip", fitted, reasons=reasons)


def step(context: GuardContext, shares: Floats) -> Stage:
    """Keep every share near that of the last decision.

    A decision that comes early (a document changed, say) may use only its part of the step, so that
    many decisions in one interval are not many steps. Decisions that move nothing (they met no new
    sample) use up nothing: otherwise one that happens to come just before a sample would leave the
    sample no step to act with.
    """
    guards = context.guards
    part = min(1.0, context.step_seconds / guards.interval_seconds)
    base = context.base
    clip_low, clip_high = _clip_bounds(context)
    low = np.clip(base * (1.0 - part * guards.step_down_ratio), clip_low, clip_high)
    high = np.clip(base * (1.0 + part * guards.step_up_ratio), clip_low, clip_high)
    normal = ~context.is_penalised
    if not is_feasible(low[normal], high[normal], context.budget):
        return Stage("step", shares, notes=("step limit waived: the bounds moved further than one step",))
    fitted = _fit_normal(context, shares, low, high)
    reasons = {
        **context.reasons(
            _is_at(fitted, low) & (shares < fitted), f"limited to -{part * guards.step_down_ratio:.0%}"
        ),
        **context.reasons(
            _is_at(fitted, high) & (shares > fitted), f"limited to +{part * guards.step_up_ratio:.0%}"
        ),
    }
    return Stage("step", fitted, reasons=reasons)


def slow_start(context: GuardContext, shares: Floats) -> Stage:
    """Hold new endpoints back while they warm up. Emergencies stay at the floor."""
    factor = context.warming
    is_warming = (factor < 1.0) & ~context.is_penalised
    if not is_warming.any():
        return Stage("slow_start", shares)
    warmed = context.with_normal((shares * factor)[~context.is_penalised])
    reasons = {
        context.endpoints[row]: f"warming up: × {factor[row]:.2f}" for row in np.flatnonzero(is_warming)
    }
    return Stage("slow_start", warmed, reasons=reasons, terms={"factor": factor})


def floor(context: GuardContext, shares: Floats) -> Stage:
    """Give every endpoint its least share: who gets no requests can never show to have recovered."""
    low = np.full(context.count, context.floor)
    fitted = fit(shares, low, np.ones(context.count), 1.0)
    return Stage(
        "floor", fitted, reasons=context.reasons(shares < low * (1 - _AT_BOUND), "lifted to the floor")
    )


def dead_band(context: GuardContext, shares: Floats) -> Stage:
    """Leave endpoints alone that hardly moved since the last publication.

    Movement is measured against the median movement, so that a refill that lifts everybody moves
    nobody. Those inside the band keep their published shares in proportion, scaled by one common
    factor to make room for the ones that did move. An endpoint that leaves the band gets its full
    share, so what is published may change by the band on top of the step. Emergencies, panic and the
    fade after lost signals pass.
    """
    published = context.published
    band = context.guards.dead_band_ratio
    if published is None or band <= 0 or not context.needs_signals or context.is_panicking:
        return Stage("dead_band", shares)
    if context.outage is not None and not context.outage.is_holding:
        return Stage("dead_band", shares)
    ratio = shares / published
    usual = median(ratio[~context.is_penalised])
    is_still = (np.abs(ratio / usual - 1.0) < band) & ~context.is_penalised
    if not is_still.any():
        return Stage("dead_band", shares)
    target = shares.copy()
    target[is_still] = scaled(published[is_still], float(shares[is_still].sum()))
    low, high = _clip_bounds(context)
    # The common factor must not carry anybody past a bound; the shares themselves always fit.
    fitted = fit(target, np.minimum(shares, low), np.maximum(shares, high), 1.0)
    return Stage(
        "dead_band", fitted, reasons=context.reasons(is_still, f"moved less than {band:.0%}: kept")
    )


def panic(context: GuardContext, shares: Floats) -> Stage:
    """Spread evenly over all when too few are fit, as Envoy does."""
    if not context.is_panicking:
        return Stage("panic", shares)
    note = f"panic: under {context.guards.panic_ratio:.0%} of the endpoints are fit, equal weights over all"
    return Stage("panic", equal(context.count), notes=(note,))


def _clip_bounds(context: GuardContext) -> tuple[Floats, Floats]:
    """Bounds of the endpoints without emergency, around *their* mean, never under the floor."""
    mean = context.budget / max(1, context.count - int(context.is_penalised.sum()))
    low = max(context.guards.clip_min_ratio * mean, context.floor)
    high = max(context.guards.clip_max_ratio * mean, low)
    return np.full(context.count, low), np.full(context.count, high)


def _fit_normal(context: GuardContext, shares: Floats, low: Floats, high: Floats) -> Floats:
    normal = ~context.is_penalised
    if not normal.any():
        return shares
    result = shares.copy()
    result[normal] = fit(shares[normal], low[normal], high[normal], context.budget)
    return result


def _is_at(shares: Floats, bound: Floats) -> Bools:
    return np.abs(shares - bound) <= _AT_BOUND * bound
