"""Measure how long the command line takes to start: whole processes, median of several."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One command, in milliseconds."""

    command: str
    median_ms: float


def measure() -> list[Row]:
    """Start Python alone, `--help`, a reader without a control plane, and a command with settings."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        trimtab = ("-m", "controlplane")
        return [
            Row("python -c pass", _median(("-c", "pass"))),
            Row("trimtab --help", _median((*trimtab, "--help"))),
            Row("trimtab status (refused)", _median((*trimtab, "status", "--addr", address))),
            Row("trimtab serve --check", _median((*trimtab, "serve", "--check", "--xds-port", "0"))),
        ]


def _median(arguments: Sequence[str]) -> float:
    spent = []
    for _ in range(ROUNDS):
        started_at = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=False, capture_output=True, timeout=60)
        spent.append(time.perf_counter() - started_at)
    return 1000 * statistics.median(spent)


def main() -> None:
    """Print the table."""
    print("| command | median |")
    print("|---|---|")
    for row in measure():
        print(f"| `{row.command}` | {row.median_ms:.0f} ms |")


if __name__ == "__main__":
    main()
