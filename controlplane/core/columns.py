"""Small figures over one column of a signal table, NaN-aware. Unknown is never zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from controlplane.model.signals import Floats, Signal, SignalTable

Bools: TypeAlias = NDArray[np.bool_]

MAX_RATE: Final = 1e9
"""Events per second beyond what any endpoint can do."""


def median(values: Floats) -> float:
    """Median of what is finite; NaN if nothing is (without numpy's warning)."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")


def known_count(values: Floats) -> int:
    """How many values are finite."""
    return int(np.isfinite(values).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Requests and errors in the signal window, as counts, shape (endpoints,), NaN where unknown.

    Errors never exceed requests: the two counters are read at slightly different moments.
    """

    requests: Floats
    errors: Floats

    @property
    def ratio(self) -> Floats:
        """Errors over requests, 0 to 1; NaN where either is unknown or there was no request."""
        known = np.nan_to_num(self.requests, nan=0.0) > 0
        return np.where(known, self.errors / np.where(known, self.requests, 1.0), np.nan)


def outcomes(table: SignalTable, window_seconds: float) -> Outcomes:
    """Count requests and errors in the window from the rates.

    Engines have no error counter, so both usually come from Envoy. Without the rate of all requests,
    good ones plus errors stand in for it.
    """
    errors = _count(table, Signal.ERRORS_PER_SECOND, window_seconds)
    good = _count(table, Signal.GOOD_REQUESTS_PER_SECOND, window_seconds)
    requests = _count(table, Signal.REQUESTS_PER_SECOND, window_seconds)
    requests = np.where(np.isnan(requests), good + errors, requests)
    return Outcomes(requests=requests, errors=np.minimum(errors, requests))


def _count(table: SignalTable, signal: str, window_seconds: float) -> Floats:
    """Turn a rate into a number of events; a rate that cannot be is unknown."""
    rate = table.column(signal)
    return np.where((rate >= 0) & (rate <= MAX_RATE), rate, np.nan) * window_seconds
