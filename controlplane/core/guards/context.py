"""What every guard may know besides the weights: settings, memory and signals, lined up by endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from controlplane.core.columns import Bools
from controlplane.core.guards.bounds import equal, scaled
from controlplane.model.decision import Stage
from controlplane.model.signals import Floats
from controlplane.model.strategy import Guards
from controlplane.model.topology import EndpointId

SLOW_START_MIN_FACTOR = 0.1
"""Least factor of a warming endpoint; Envoy's own `min_weight_percent` default."""


@dataclass(frozen=True, slots=True, eq=False)
class Outage:
    """Signals are lost. `progress` is 0 while holding and reaches 1 when the fade is over."""

    reason: str
    progress: float
    origin: Floats
    """Shares at the moment signals were lost."""

    @property
    def is_holding(self) -> bool:
        """The last weights are kept as they are."""
        return self.progress <= 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuardContext:
    """One service at one moment. Arrays have shape (endpoints,), in the order of `endpoints`."""

    guards: Guards
    endpoints: tuple[EndpointId, ...]
    now: float
    elapsed_seconds: float
    """Since the last decision; infinite at the first."""
    step_seconds: float
    """Since the last decision that moved anything; infinite at the first."""
    previous: Floats
    """Shares of the last decision on today's endpoints: newcomers have the median, the rest was
    scaled to make room. Equal at the first decision."""
    published: Floats | None
    """Shares that Envoy has, on today's endpoints; `None` before the first publication."""
    age_seconds: Floats
    """Since the endpoint was first seen."""
    sampled_at: Floats
    """Decision time of each endpoint's newest sample, NaN without any."""
    smoothed_at: Floats
    """Decision time of the newest sample that smoothing has used, NaN if none."""
    is_serving: Bools
    """Not draining."""
    is_healthy: Bools
    """Healthy by discovery."""
    penalty_until: Mapping[EndpointId, float]
    """Endpoints under emergency, and until when."""
    penalty_reasons: Mapping[EndpointId, str]
    is_penalised: Bools
    needs_signals: bool
    outage: Outage | None = None

    @property
    def count(self) -> int:
        """Number of endpoints."""
        return len(self.endpoints)

    @property
    def floor(self) -> float:
        """Least share of any endpoint."""
        return self.guards.floor_ratio / self.count

    @property
    def budget(self) -> float:
        """What endpoints under emergency leave for the others."""
        return 1.0 - self.floor * int(self.is_penalised.sum())

    @property
    def base(self) -> Floats:
        """`previous` with emergencies at the floor: what smoothing and step limit start from."""
        return self.with_normal(self.previous[~self.is_penalised])

    @property
    def warming(self) -> Floats:
        """Slow start's factor, at most 1; all 1 when all endpoints are equally new.

        max(0.1, (age / slow_start_seconds)^(1 / aggression)), as in Envoy's own slow start, which
        does not cover Maglev. Factors are relative to the oldest endpoint's.
        """
        seconds = self.guards.slow_start_seconds
        if seconds <= 0:
            return np.ones(self.count)
        progress = np.clip(self.age_seconds / seconds, 0.0, 1.0)
        factor = np.maximum(SLOW_START_MIN_FACTOR, progress ** (1.0 / self.guards.slow_start_aggression))
        return np.asarray(factor / factor.max())

    @property
    def is_panicking(self) -> bool:
        """Too few endpoints are fit: weights would only crush those that are left.

        Draining endpoints do not count, as in Envoy.
        """
        serving = int(self.is_serving.sum())
        fit = int((self.is_serving & self.is_healthy & ~self.is_penalised).sum())
        return serving == 0 or fit < self.guards.panic_ratio * serving

    def with_normal(self, shares: Floats) -> Floats:
        """Put shares of the endpoints without emergency into a whole vector, scaled to `budget`.

        Endpoints under emergency get the floor. When all are, nobody is worse than the others: equal.
        """
        if self.is_penalised.all():
            return equal(self.count)
        result = np.full(self.count, self.floor)
        result[~self.is_penalised] = scaled(shares, self.budget)
        return result

    def reasons(self, mask: Bools, reason: str) -> dict[EndpointId, str]:
        """Give the same reason to every endpoint of `mask`."""
        return dict.fromkeys((self.endpoints[row] for row in np.flatnonzero(mask)), reason)


Guard: TypeAlias = Callable[[GuardContext, Floats], Stage]
"""A guard takes shares and gives shares with reasons; it never changes its input array."""
