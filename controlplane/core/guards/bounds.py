"""Fit shares between bounds by proportional refill.

Clamping and renormalising in turn breaks what it just mended: the renormalised vector is out of
bounds again. Instead one common factor λ is found such that the clamped shares add up:

    Σ clamp(λ·target_i, low_i, high_i) = budget

The sum rises with λ piecewise linearly, so λ is exact after one sort of the 2N corners. Every share
that is not at a bound keeps its ratio to the others: an outlier costs the rest a proportional
refill, and nothing else.
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
    target = np.maximum(target, _TINY * budget / len(target))
    return np.clip(_factor(target, low, high, budget) * target, low, high)


def _factor(target: Floats, low: Floats, high: Floats, budget: float) -> float:
    """Find λ. Walking up in λ, a share starts to grow at low/target and stops at high/target."""
    corners = np.concatenate((low / target, high / target))
    slopes = np.concatenate((target, -target))
    order = np.argsort(corners, kind="stable")
    corners, slopes = corners[order], np.cumsum(slopes[order])
    sums = low.sum() + np.concatenate(((0.0,), np.cumsum(slopes[:-1] * np.diff(corners))))
    at = int(np.searchsorted(sums, budget))
    if at == 0:
        return float(corners[0])
    if at == len(sums):
        return float(corners[-1])
    slope = slopes[at - 1]
    return float(corners[at] if slope <= 0 else corners[at - 1] + (budget - sums[at - 1]) / slope)
