"""Time from writing a strategy to Consul KV until Envoy has acknowledged what follows from it.

Everything is real and a process of its own: Consul, `trimtab serve`, Envoy (delta ADS). Nothing else
happens meanwhile. The end is seen by asking Trimtab's ``/v1/status`` every few milliseconds, which
adds up to one pause and one answer to each time, and some load to what is measured.

Two paces are measured. After a rest, nothing is in an edit's way but Trimtab's debounce of Consul's
changes (`controlplane.sources.blocking`: 0.1 s of quiet). Edits a second apart also meet the bound that
Trimtab sets to its own queries to Consul: a few at once, then one a second.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, median_of
from tests.support.system import System, SystemOptions, running_system, strategy_document

EDITS = 8
POLL_SECONDS = 0.003
IDLE_SECONDS = 6.0
"""Rest between edits after which Trimtab may ask Consul at once again (it bounds its own rate)."""
BUSY_SECONDS = 1.0
"""Rest between edits in a row: most of the time is then that bound."""
PATIENCE_SECONDS = 30.0
ENDPOINTS = "ClusterLoadAssignment"
ROUTES = "RouteConfiguration"
EVEN, ODD = (1, 2, 3, 4), (4, 3, 2, 1)
_OPTIONS = SystemOptions(signals="scrape", settings={"loop": {"interval_seconds": 5.0}})


def measure() -> dict[str, list[float]]:
    """Time edits of weights (EDS) and of routes (RDS); gives milliseconds of each edit, by kind."""
    return asyncio.run(_measure())


async def _measure() -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with running_system(Path(folder), _OPTIONS) as system:
            await system.until_served()
            # The first change of law is not an edit like the others.
            await _edit(system, 0, ENDPOINTS, weights=EVEN, timeout_seconds=0)
            idle = await _edits(system, first=1, rest_seconds=IDLE_SECONDS)
            busy = await _edits(system, first=1 + EDITS, rest_seconds=BUSY_SECONDS)
            return {
                "new weights (EDS), idle": idle[ENDPOINTS],
                "new routes (RDS), idle": idle[ROUTES],
                "edits a second apart": busy[ENDPOINTS] + busy[ROUTES],
            }


async def _edits(system: System, *, first: int, rest_seconds: float) -> dict[str, list[float]]:
    spent: dict[str, list[float]] = {ENDPOINTS: [], ROUTES: []}
    for number in range(first, first + EDITS):
        weights = EVEN if number % 2 == 0 else ODD
        # One part changes at a time: first the weights, then the route's timeout.
        for kind, timeout in ((ENDPOINTS, number - 1), (ROUTES, number)):
            edit = 2 * number + (kind == ROUTES)
            # Not in step with the loop's own interval.
            await asyncio.sleep(rest_seconds + 0.037 * (edit % 9))
            milliseconds = await _edit(system, edit, kind, weights=weights, timeout_seconds=timeout)
            spent[kind].append(milliseconds)
    return spent


async def _edit(
    system: System,
    number: int,
    kind: str,
    *,
    weights: tuple[int, ...],
    timeout_seconds: float,
) -> float:
    """Write one edit; give the milliseconds until the first Envoy acknowledged a new version of `kind`."""
    document = _document(system, number, weights, timeout_seconds)
    before = (await system.acked())[kind][0]
    started = time.perf_counter()
    await system.write_strategy(document)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            intended, acked = (await system.acked())[kind]
            if intended != before and acked == intended:
                return (time.perf_counter() - started) * 1_000
            await asyncio.sleep(POLL_SECONDS)


def _document(
    system: System, number: int, weights: tuple[int, ...], timeout_seconds: float
) -> Mapping[str, Any]:
    document = strategy_document(f"1.{number + 1}.0", law="static")
    # Without smoothing and steps, one edit is one publication.
    guards = document["guards"] | {
        "interval_seconds": 0.1,
        "tau_down_seconds": 0,
        "tau_up_seconds": 0,
        "step_down_ratio": 1,
        "step_up_ratio": 100,
    }
    return document | {
        "guards": guards,
        "parameters": {"weights": dict(zip(system.names, weights, strict=True))},
        "routing": {"domains": ["*"], "timeout_seconds": timeout_seconds},
    }


def figures() -> list[Figure]:
    """Give the figures of a run."""
    return [median_of(f"KV write → Envoy ACK, {kind}", values, "ms") for kind, values in measure().items()]


if __name__ == "__main__":
    for figure in figures():
        print(f"{figure.measure}: {figure.value:.1f} ms ({figure.low:.1f} to {figure.high:.1f})")
