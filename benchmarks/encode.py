"""Compare encoding a load assignment whole, by the library, with splicing weights into kept bytes."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment, LocalityLbEndpoints
from envoy_data_plane.google.protobuf import Any

from benchmarks.figure import Figure, median_of
from controlplane.model.plan import ClusterPlan, WeightedEndpoint
from controlplane.model.resources import ENDPOINT
from controlplane.model.strategy import Strategy
from controlplane.model.topology import Endpoint
from controlplane.xds.build.encode import wrap
from controlplane.xds.build.endpoints import AssignmentEncoder, lb_endpoint

_STRATEGY = Strategy(schema=1, version="1.0.0")


@dataclass(frozen=True, slots=True)
class Row:
    """Times for one number of endpoints, in milliseconds, of each round."""

    endpoints: int
    first_ms: float
    spliced_ms: tuple[float, ...]
    whole_ms: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times longer the library takes, by the medians."""
        return statistics.median(self.whole_ms) / statistics.median(self.spliced_ms)


def plan_of(endpoints: int, *, round_number: int = 0) -> ClusterPlan:
    """Make a plan whose weights differ from round to round."""
    weighted = [
        WeightedEndpoint(
            Endpoint(address=f"10.0.{index // 250}.{index % 250 + 1}", port=8000),
            weight=500 + (index * 37 + round_number * 101) % 1_000,
        )
        for index in range(endpoints)
    ]
    return ClusterPlan(
        "llama", "llama", _STRATEGY, tuple(sorted(weighted, key=lambda each: each.endpoint.id))
    )


def whole(plan: ClusterPlan) -> bytes:
    """Encode a plan's load assignment with the library alone."""
    members = [lb_endpoint(each.endpoint, each.weight) for each in plan.endpoints]
    message = ClusterLoadAssignment(
        cluster_name=plan.name,
        endpoints=[LocalityLbEndpoints(lb_endpoints=members)],
    )
    return bytes(Any.pack(message))


def measure(*, endpoints: int = 1_000, rounds: int = 20) -> Row:
    """Measure both ways in one process, several rounds, for a change of every weight.

    Raises:
        AssertionError: if the two encodings differ.
    """
    encoder = AssignmentEncoder()
    first_ms = _milliseconds(lambda: encoder.encode(plan_of(endpoints)))
    plans = [plan_of(endpoints, round_number=number) for number in range(1, rounds + 1)]
    spliced = [_milliseconds(lambda plan=plan: encoder.encode(plan)) for plan in plans]  # type: ignore[misc]
    whole_ms = [_milliseconds(lambda: whole(plans[-1])) for _ in range(5)]
    if wrap(ENDPOINT, encoder.encode(plans[-1])) != whole(plans[-1]):
        raise AssertionError("spliced and whole encodings differ")
    return Row(endpoints, first_ms, tuple(spliced), tuple(whole_ms))


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1_000


def figures() -> list[Figure]:
    """Give the figures of a run with 1,000 endpoints."""
    row = measure()
    return [
        median_of("encode EDS, 1,000 endpoints, new weights", row.spliced_ms, "ms", below=3.0),
        Figure("encode EDS, 1,000 endpoints, first time", row.first_ms, "ms"),
        median_of("the same by the library", row.whole_ms, "ms"),
        Figure("library / new weights (identical bytes)", row.ratio, "times"),
    ]


def main() -> None:
    """Print one line for each size."""
    for endpoints in (10, 100, 1_000):
        row = measure(endpoints=endpoints)
        print(
            f"{endpoints:>6} endpoints: whole {statistics.median(row.whole_ms):8.2f} ms, "
            f"first {row.first_ms:8.2f} ms, spliced {statistics.median(row.spliced_ms):6.3f} ms, "
            f"ratio {row.ratio:6.1f}",
        )


if __name__ == "__main__":
    main()
