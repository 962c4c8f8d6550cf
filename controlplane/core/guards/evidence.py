"""Guards about evidence: what to do where the law has no opinion, or nobody has signals."""

from __future__ import annotations

import numpy as np

from controlplane.core.columns import Bools, median
from controlplane.core.guards.bounds import equal, scaled
from controlplane.core.guards.context import GuardContext
from controlplane.model.decision import Stage
from controlplane.model.signals import Floats


def has_opinion(raw: Floats) -> Bools:
    """Tell where a law's figure can be used: finite and not negative."""
    return np.isfinite(raw) & (raw >= 0)


def fill(context: GuardContext, raw: Floats) -> Stage:
    """Turn the law's figures into shares; endpoints it has no opinion of get the median."""
    is_valid = has_opinion(raw)
    largest = float(raw[is_valid].max()) if is_valid.any() else 0.0
    if largest <= 0:
        return Stage("fill", equal(context.count), notes=("the law favours nobody: equal",))
    # Relative to the largest first: figures near the end of the float range must not overflow the sum.
    relative = np.where(is_valid, raw, 0.0) / largest
    middle = median(relative[is_valid])
    shares = scaled(np.where(is_valid, relative, middle), 1.0)
    reason = f"no opinion: median of {int(is_valid.sum())} endpoints"
    return Stage("fill", shares, reasons=context.reasons(~is_valid, reason))


def hold(context: GuardContext, shares: Floats) -> Stage:
    """Without signals keep the last weights for a while, then fade linearly to equal."""
    outage = context.outage
    if outage is None:
        return Stage("hold", shares)
    if outage.is_holding:
        return Stage("hold", context.previous, notes=(f"{outage.reason}: last weights kept",))
    faded = outage.origin + outage.progress * (equal(context.count) - outage.origin)
    return Stage("hold", faded, notes=(f"{outage.reason}: faded to equal by {outage.progress:.0%}",))
