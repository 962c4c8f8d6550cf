"""Weights as Envoy gets them."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model.topology import EndpointId

TOTAL_WEIGHT = 1_000_000
"""Constant total of a service's integer weights (each at least 1)."""

MAX_TOTAL_WEIGHT = 2**32 - 1
"""Envoy refuses an assignment whose weights sum to more within a priority."""


@dataclass(frozen=True, slots=True)
class WeightVector:
    """Integer weights, each at least 1, in the order of `endpoints` (sorted, unique)."""

    endpoints: tuple[EndpointId, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check what Envoy would refuse.

        Raises:
            ValueError: if lengths differ, order is wrong, a weight is below 1, or the sum too large.
        """
        if len(self.endpoints) != len(self.weights):
            msg = f"{len(self.endpoints)} endpoints but {len(self.weights)} weights"
            raise ValueError(msg)
        if list(self.endpoints) != sorted(set(self.endpoints)):
            msg = "endpoints are not sorted or not unique"
            raise ValueError(msg)
        if any(weight < 1 for weight in self.weights):
            msg = "a weight is below 1"
            raise ValueError(msg)
        if sum(self.weights) > MAX_TOTAL_WEIGHT:
            msg = f"weights sum to more than {MAX_TOTAL_WEIGHT}"
            raise ValueError(msg)

    @property
    def shares(self) -> tuple[float, ...]:
        """Each endpoint's share of the total, 0 to 1; empty for no endpoints."""
        total = sum(self.weights)
        return tuple(weight / total for weight in self.weights)

    def as_mapping(self) -> dict[EndpointId, int]:
        """Endpoint → weight."""
        return dict(zip(self.endpoints, self.weights, strict=True))
