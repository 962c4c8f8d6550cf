"""Measure how long the command line takes to start: whole processes, median of several."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, median_of

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One command, in milliseconds, of each round."""

    command: str
    times_ms: tuple[float, ...]


def measure() -> list[Row]:
    """Start Python alone, `--help`, a reader without a control plane, and a command with settings."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        trimtab = ("-m", "controlplane")
        return [
            Row("python -c pass", _times(("-c", "pass"))),
            Row("trimtab --help", _times((*trimtab, "--help"))),
            Row("trimtab status (refused)", _times((*trimtab, "status", "--addr", address))),
            Row("trimtab serve --check", _times((*trimtab, "serve", "--check", "--xds-port", "0"))),
        ]


def _times(arguments: Sequence[str]) -> tuple[float, ...]:
    spent = []
    for _ in range(ROUNDS):
        started_at = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=False, cwd=ROOT, capture_output=True, timeout=60)
        spent.append(time.perf_counter() - started_at)
    return tuple(1000 * each for each in spent)


def figures() -> list[Figure]:
    """Give the figures of a run."""
    targets = {"trimtab --help": 500.0}
    return [
        median_of(f"start: {row.command}", row.times_ms, "ms", below=targets.get(row.command))
        for row in measure()
    ]


def main() -> None:
    """Print the table."""
    print("| command | median |")
    print("|---|---|")
    for row in measure():
        print(f"| `{row.command}` | {statistics.median(row.times_ms):.0f} ms |")


if __name__ == "__main__":
    main()
