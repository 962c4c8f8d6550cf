"""Fit shares between bounds by proportional refill.

Clamping and renormalising in turn breaks what it just mended: the renormalised vector is out of
bounds again. Instead one common factor λ is found such that the clamped shares add up:

    Σ clamp(λ·target_i, low_i, high_i) = budget

The sum rises with λ piecewise linearly, so λ is exact after one sort of the 2N corners and a binary
search. Every share that is not at a bound keeps its ratio to the others: an outlier costs the rest a
proportional refill, and nothing else.
"""

from __future__ import annotations

import numpy as np

from controlplane.model.signals import Floats

_TINY = 1e-9
_EXACT = 1e-12


def equal(count: int) -> Floats:
    """Shares that are all the same, summing to 1."""
    return np.full(count, 1.0 / max(count, 1))


def scaled(shares: Floats, budget: float) -> Floats:
    """Shares in the same ratios, summing to `budget`; equal ones if there is nothing to scale."""
    largest = float(shares.max(initial=0.0))
    if not largest > 0:
        return equal(len(shares)) * budget
    if abs(float(shares.sum()) - budget) < _EXACT * budget:
        return shares
    # Relative to the largest first: what is left beside a giant can be too small to divide by.
    relative = shares / largest
    return relative * (budget / float(relative.sum()))


def is_feasible(low: Floats, high: Floats, budget: float) -> bool:
    """Tell whether any shares between the bounds add up to `budget`."""
    return bool(low.sum() <= budget * (1 + _EXACT) and high.sum() >= budget * (1 - _EXACT))


def fit(target: Floats, low: Floats, high: Floats, budget: float) -> Floats:
    """Give the shares nearest in ratio to `target` that lie in [low, high] and add up to `budget`.

    All arrays have shape (endpoints,). A target that fits already comes back unchanged, bit for bit.

    Raises:
        ValueError: if no shares can fit (`is_feasible`).
    """
    if not is_feasible(low, high, budget):
        raise ValueError(f"no shares between the bounds add up to {budget}")
    is_inside = bool(((target >= low) & (target <= high)).all())
    if is_inside and abs(float(target.sum()) - budget) < _EXACT:
        return target
    # Nothing is worth exactly nothing, or no factor could lift it to where bounds need it.
    largest = float(target.max())
    target = np.maximum(target / largest, _TINY) if largest > 0 else np.ones_like(target)
    return np.clip(_factor(target, low, high, budget) * target, low, high)


def _factor(target: Floats, low: Floats, high: Floats, budget: float) -> float:
    """Find λ: walking up in λ, a share starts to grow at low/target and stops at high/target.

    Sums are computed anew at each corner tried: running totals lose the small shares beside a giant.
    """
    corners = np.sort(np.concatenate((low / target, high / target)))

    def total(at: int) -> float:
        return float(np.clip(corners[at] * target, low, high).sum())

    below, above = 0, len(corners) - 1
    while above - below > 1:
        middle = (below + above) // 2
        if total(middle) < budget:
            below = middle
        else:
            above = middle
    start, end = total(below), total(above)
    part = (budget - start) / (end - start) if end > start else 0.0
    return float(corners[below] + min(1.0, max(0.0, part)) * (corners[above] - corners[below]))
