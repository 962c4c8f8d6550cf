"""Time to build a Maglev table, by number of hosts, and to compare two tables."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure
from controlplane.core.maglev import Host, build_table, moves
from controlplane.core.maglev.disruption import moved_share
from controlplane.core.maglev.turns import turn_order
from controlplane.core.maglev.weights import flat_weights
from controlplane.model.strategy import DEFAULT_TABLE_SIZE

HOSTS = (2, 10, 100, 1000)
REPEATS = 7


def measure() -> list[dict[str, float]]:
    """Give one row per number of hosts; times are the best of several runs, in milliseconds."""
    return [_measure(hosts) for hosts in HOSTS]


def _measure(count: int) -> dict[str, float]:
    draw = random.Random(count)  # noqa: S311 - repeatable weights, not cryptography
    hosts = [
        Host(key=f"10.0.{index // 250}.{index % 250}:8000", weight=draw.randint(100, 1000))
        for index in range(count)
    ]
    keys, weights = [host.key for host in hosts], flat_weights(hosts)
    changed = weights.copy()
    changed[0] *= 0.9
    before = build_table(keys, weights, DEFAULT_TABLE_SIZE)
    after = build_table(keys, changed, DEFAULT_TABLE_SIZE)
    return {
        "hosts": count,
        "build_ms": _best_ms(lambda: build_table(keys, weights, DEFAULT_TABLE_SIZE)),
        "turn_order_ms": _best_ms(lambda: turn_order(weights, DEFAULT_TABLE_SIZE)),
        "moves_ms": _best_ms(lambda: moves(before, after)),
        "moved_share_ms": _best_ms(lambda: moved_share(before, after)),
        "moved_percent_for_10_percent_less": 100 * moves(before, after).share,
    }


def _best_ms(call: Callable[[], object]) -> float:
    durations = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        durations.append((time.perf_counter() - started) * 1000)
    return min(durations)


def figures() -> list[Figure]:
    """Give the figures of a run; times are the best of several."""
    return [
        Figure(f"build a Maglev table, {row['hosts']:,} hosts, best", row["build_ms"], "ms")
        for row in measure()
    ]


def main() -> None:
    """Print the table."""
    rows = measure()
    print("  ".join(f"{name:>14}" for name in rows[0]))
    for row in rows:
        print("  ".join(f"{value:>14.5g}".rjust(len(name)) for name, value in row.items()))


if __name__ == "__main__":
    main()
