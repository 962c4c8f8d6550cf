"""Whether weights are worth sending: hysteresis, and at most one publication per interval.

Every change makes Envoy rebuild a table and moves conversations to other hosts, an identical push
included, so the default answer is no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from controlplane.model.strategy import Guards
from controlplane.model.weights import WeightVector

INTERVAL_TOLERANCE: Final = 0.05
"""Part of the interval by which a decision may come early: a tick that comes a moment early must not
lose its turn and halve the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Why a publication might be due apart from the weights themselves."""

    seconds_since_published: float
    is_frozen: bool = False
    is_strategy_new: bool = False
    is_emergency_new: bool = False
    is_holding: bool = False
    is_exact: bool = False
    """The law reads no signals: every difference was asked for, none is noise."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to publish, and why (or why not) in the words of `Decision.publish_reason`."""

    is_published: bool
    reason: str


def moved_share(old: WeightVector, new: WeightVector) -> float:
    """Share of traffic that moves: half the sum of all share changes. Same endpoints in both."""
    return float(np.abs(np.subtract(new.shares, old.shares)).sum() / 2)


def largest_change(old: WeightVector, new: WeightVector) -> float:
    """Largest relative change of one share, up or down: 1.0 for twice as well as for half."""
    if not old.endpoints:
        return 0.0
    ratio = np.array(new.shares) / np.array(old.shares)
    return float(np.maximum(ratio, 1.0 / ratio).max() - 1.0)


def judge(
    published: WeightVector | None, proposed: WeightVector, occasion: Occasion, guards: Guards
) -> Verdict:
    """Decide on publication. Events that people wait for pass at once; drift has to be worth it."""
    if published is None:
        return Verdict(True, "first")
    if published == proposed:
        return Verdict(False, "hold" if occasion.is_holding or occasion.is_frozen else "hysteresis")
    event = _event(published, proposed, occasion)
    if event:
        return Verdict(True, event)
    is_significant = (
        occasion.is_exact
        or moved_share(published, proposed) >= guards.hysteresis_ratio
        or largest_change(published, proposed) >= guards.hysteresis_endpoint_ratio
    )
    if not is_significant:
        return Verdict(False, "hold" if occasion.is_holding else "hysteresis")
    if occasion.seconds_since_published < guards.interval_seconds * (1.0 - INTERVAL_TOLERANCE):
        return Verdict(False, "interval")
    return Verdict(True, "weights")


def _event(published: WeightVector, proposed: WeightVector, occasion: Occasion) -> str:
    if published.endpoints != proposed.endpoints:
        return "membership"
    if occasion.is_frozen:
        return "freeze"
    if occasion.is_strategy_new:
        return "strategy"
    return "emergency" if occasion.is_emergency_new else ""
