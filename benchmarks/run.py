"""Run every benchmark, each in a process of its own; print one table and write it as JSON.

Usage: python benchmarks/run.py [--only NAME]...
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ("decide", "maglev", "encode", "import_time", "push", "memory", "fanout")
OUTPUT = ROOT / "build" / "bench" / "bench.json"
PATIENCE_SECONDS = 600


def main() -> int:
    """Run the benchmarks; exit code 1 if one failed. A target that is missed fails nothing."""
    parser = argparse.ArgumentParser(description="Measure Trimtab.")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one (repeatable)")
    names = parser.parse_args().only or BENCHMARKS
    machine = _machine()
    results = {}
    for name in names:
        print(f"running {name} ...", file=sys.stderr, flush=True)
        results[name] = run(name)
    done = {name: found for name, found in results.items() if found is not None}
    print(table([figure for found in done.values() for figure in found]))
    _write({"machine": machine, "figures": {name: _rows(found) for name, found in done.items()}})
    failed = sorted(results.keys() - done.keys())
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str) -> list[Figure] | None:
    """Run one benchmark; what it says of a failure goes to stderr, and the figures are `None`."""
    command = [sys.executable, "-m", "benchmarks.figure", name]
    try:
        ended = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=True, text=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None
    return [Figure(**row) for row in json.loads(ended.stdout.splitlines()[-1])]


def table(figures: list[Figure]) -> str:
    """Lay figures out as a Markdown table."""
    rows = [("measure", "value", "unit", "spread", "target")]
    rows += [
        (each.measure, _number(each.value), each.unit, _spread(each), _target(each)) for each in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _spread(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f"{_number(figure.low)} to {_number(figure.high)}"


def _target(figure: Figure) -> str:
    if figure.below is None:
        return ""
    return f"< {figure.below:g}: {'met' if figure.is_met else 'MISSED'}"


def _machine() -> dict[str, object]:
    """Describe the machine in general; the load before the start tells if others used it too."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "load_average_before": os.getloadavg()[0],
    }


def _rows(figures: list[Figure]) -> list[dict[str, object]]:
    return [asdict(each) for each in figures]


def _write(content: dict[str, object]) -> None:
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
