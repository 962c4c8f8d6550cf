"""Compare encoding a load assignment whole, by the library, with splicing weights into kept bytes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment, LocalityLbEndpoints
from envoy_data_plane.google.protobuf import Any

from controlplane.model.plan import ClusterPlan, WeightedEndpoint
from controlplane.model.resources import ENDPOINT
from controlplane.model.strategy import Strategy
from controlplane.model.topology import Endpoint
from controlplane.xds.build.encode import wrap
from controlplane.xds.build.endpoints import AssignmentEncoder, lb_endpoint

_STRATEGY = Strategy(schema=1, version="1.0.0")


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


def measure(*, endpoints: int = 1_000, rounds: int = 20) -> dict[str, float]:
    """Measure both ways in one process, best of several rounds, for a change of every weight.

    Returns milliseconds (`whole_ms`, `first_ms`, `spliced_ms`) and the ratio `whole / spliced`.

    Raises:
        AssertionError: if the two encodings differ.
    """
    encoder = AssignmentEncoder()
    first_ms = _milliseconds(lambda: encoder.encode(plan_of(endpoints)))
    plans = [plan_of(endpoints, round_number=number) for number in range(1, rounds + 1)]
    spliced_ms = min(_milliseconds(lambda plan=plan: encoder.encode(plan)) for plan in plans)  # type: ignore[misc]
    whole_ms = min(_milliseconds(lambda: whole(plans[-1])) for _ in range(3))
    if wrap(ENDPOINT, encoder.encode(plans[-1])) != whole(plans[-1]):
        raise AssertionError("spliced and whole encodings differ")
    return {
        "endpoints": float(endpoints),
        "whole_ms": whole_ms,
        "first_ms": first_ms,
        "spliced_ms": spliced_ms,
        "ratio": whole_ms / spliced_ms,
    }


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1_000


def main() -> None:
    """Print one line for each size."""
    for endpoints in (10, 100, 1_000):
        figures = measure(endpoints=endpoints)
        print(
            f"{endpoints:>6} endpoints: whole {figures['whole_ms']:8.2f} ms, "
            f"first {figures['first_ms']:8.2f} ms, spliced {figures['spliced_ms']:6.3f} ms, "
            f"ratio {figures['ratio']:6.1f}",
        )


if __name__ == "__main__":
    main()
