"""What a benchmark reports, and how one is run in a process of its own.

A benchmark is a module here with a function ``figures() -> list[Figure]``.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value."""

    measure: str
    value: float
    """The median, where there is a spread."""
    unit: str
    low: float | None = None
    high: float | None = None
    below: float | None = None
    """Target: the value is to be less than this."""

    @property
    def is_met(self) -> bool:
        """Whether the target, if any, is met."""
        return self.below is None or self.value < self.below


def median_of(measure: str, values: Sequence[float], unit: str, *, below: float | None = None) -> Figure:
    """Make a figure of several runs: their median, between the least and the greatest."""
    return Figure(measure, statistics.median(values), unit, min(values), max(values), below)


def main() -> None:
    """Print the figures of the benchmark that is named, as JSON."""
    module = importlib.import_module(f"benchmarks.{sys.argv[1]}")
    print(json.dumps([asdict(each) for each in module.figures()]))


if __name__ == "__main__":
    main()
