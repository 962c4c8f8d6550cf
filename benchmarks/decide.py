"""Measure one decision: tabulating samples, deciding, explaining."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, median_of
from controlplane.core.decide import decide
from controlplane.core.explain import explain
from controlplane.core.parse import document_hash, parse_strategy
from controlplane.core.sanitize import tabulate
from controlplane.model.decision import Decision, ServiceInputs, ServiceMemory
from controlplane.model.signals import Readings, Sample, Signal
from controlplane.model.strategy import Strategy
from controlplane.model.topology import Endpoint, ServiceTopology

SIZES = (10, 1_000, 10_000)
SIGNALS = tuple(str(signal) for signal in Signal if signal is not Signal.GPU_FAULT)[:15]
ROUNDS = 9

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """Times for one number of endpoints, in milliseconds, of each round."""

    endpoints: int
    tabulate_ms: tuple[float, ...]
    decide_ms: tuple[float, ...]
    explain_ms: tuple[float, ...]


def measure() -> list[Row]:
    """Decide several times in a row for each size, with noisy signals and memory carried on."""
    parsed = parse_strategy(b'{"schema": 1, "version": "1.0.0"}', key="benchmark")
    if not isinstance(parsed, Strategy):
        raise TypeError(str(parsed))
    return [_measure(count, parsed) for count in SIZES]


def _measure(count: int, strategy: Strategy) -> Row:
    topology = _topology(count)
    ids = topology.ids
    random = np.random.default_rng(count)
    memory = ServiceMemory()
    spent: dict[str, list[float]] = {"tabulate": [], "decide": [], "explain": []}
    for turn in range(ROUNDS):
        now = 1000.0 + 5.0 * turn
        readings = Readings("chat", now, _samples(ids, random))
        table = _timed(spent["tabulate"], partial(tabulate, readings, ids, stale_after_seconds=60, now=now))
        inputs = ServiceInputs(
            strategy=strategy, strategy_hash=document_hash(strategy), topology=topology, table=table
        )
        decision: Decision = _timed(spent["decide"], partial(decide, inputs, memory, now))
        memory = decision.memory
        _timed(spent["explain"], partial(explain, decision, ids[0]))
    tabulated, decided, explained = (tuple(1000 * each for each in times) for times in spent.values())
    return Row(count, tabulated, decided, explained)


def _topology(count: int) -> ServiceTopology:
    endpoints = (Endpoint(address=f"10.{row >> 8}.{row & 255}.1", port=8000) for row in range(count))
    return ServiceTopology("chat", tuple(sorted(endpoints, key=lambda each: each.id)))


def _samples(ids: tuple[str, ...], random: np.random.Generator) -> tuple[Sample, ...]:
    values = random.uniform(0.3, 0.9, (len(SIGNALS), len(ids)))
    values[SIGNALS.index("window_requests")] *= 500
    values[SIGNALS.index("output_tokens_per_second")] *= 1000
    values[SIGNALS.index("errors_per_second")] *= 0.01
    return tuple(
        Sample(endpoint, signal, value, 1.0)
        for signal, column in zip(SIGNALS, values.tolist(), strict=True)
        for endpoint, value in zip(ids, column, strict=True)
    )


def _timed(times: list[float], work: Callable[[], T]) -> T:
    start = time.perf_counter()
    result = work()
    times.append(time.perf_counter() - start)
    return result


def figures() -> list[Figure]:
    """Give the figures of a run; the first round of each size, which fills caches, is within the spread."""
    return [
        median_of(f"{step}, {row.endpoints:,} endpoints", times, "ms")
        for row in measure()
        for step, times in (("tabulate samples", row.tabulate_ms), ("decide", row.decide_ms))
    ]


if __name__ == "__main__":
    print(f"{'endpoints':>10} {'tabulate ms':>12} {'decide ms':>10} {'explain ms':>11}")
    for row in measure():
        medians = (statistics.median(times) for times in (row.tabulate_ms, row.decide_ms, row.explain_ms))
        print(f"{row.endpoints:>10} {'{:>12.2f} {:>10.2f} {:>11.2f}'.format(*medians)}")
