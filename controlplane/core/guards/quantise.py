"""From shares to the integers that Envoy takes."""

from __future__ import annotations

import numpy as np

from controlplane.model.signals import Floats
from controlplane.model.topology import EndpointId
from controlplane.model.weights import TOTAL_WEIGHT, WeightVector

_DECIMALS = 6
"""Of one unit of weight. Few enough to hide the last bits of a double, and so many that rounding a
million shares adds less than one unit."""


def quantise(endpoints: tuple[EndpointId, ...], shares: Floats) -> WeightVector:
    """Round shares to integers of at least 1 that add up to `TOTAL_WEIGHT`, by largest remainder.

    Equal shares (to 10⁻¹² of the total) give equal integers on every machine: numpy's sums differ in
    the last bit from CPU to CPU, so shares are rounded before they are compared, and ties go to the
    first endpoint. With more endpoints than `TOTAL_WEIGHT`, each gets 1.
    """
    count = len(endpoints)
    spare = TOTAL_WEIGHT - count
    if count == 0 or spare <= 0:
        return WeightVector(endpoints, (1,) * count)
    exact = np.maximum(shares / shares.sum() * TOTAL_WEIGHT, 1.0)
    # At least 1 each is taken out first, so that lifting the least never has to be paid back.
    above = exact - 1.0
    exact = 1.0 + (above * (spare / above.sum()) if above.sum() > 0 else np.full(count, spare / count))
    exact = np.round(exact, _DECIMALS)
    whole = np.floor(exact)
    missing = TOTAL_WEIGHT - int(whole.sum())
    order = np.argsort(-(exact - whole), kind="stable")
    whole[order[:missing]] += 1.0
    return WeightVector(endpoints, tuple(int(weight) for weight in whole))
