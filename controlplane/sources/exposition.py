"""Reading the Prometheus text format from an untrusted peer.

A model server's page has a thousand lines of which some two hundred matter, and the official parser
takes about 10 µs a line: lines of other metrics are skipped before they reach it. Limits make the
cost of a hostile page small and known; a page that breaks one, or that has one malformed line that
matters, is refused whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from controlplane.sources.answers import Failed, Outcome

MAX_LINE_CHARACTERS = 8192
MAX_SERIES = 20_000
"""Series that matter, on one page."""


Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names with values, sorted by name."""


@dataclass(frozen=True, slots=True)
class Point:
    """One series with its value."""

    metric: str
    labels: Labels
    value: float


def parse(body: bytes, wanted: frozenset[str]) -> tuple[Point, ...] | Failed:
    """Read the series of the `wanted` metrics, in the page's order.

    Metric types and timestamps on the page are ignored: a name means what the catalogue says, and
    a page just fetched is fresh.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return Failed(Outcome.MALFORMED, "not UTF-8 text")
    lines: list[str] = []
    for line in _lines(text, wanted):
        if len(line) > MAX_LINE_CHARACTERS:
            return Failed(Outcome.MALFORMED, f"a line of {len(line)} characters")
        if len(lines) == MAX_SERIES:
            return Failed(Outcome.MALFORMED, f"more than {MAX_SERIES} series of interest")
        lines.append(line)
    try:
        return tuple(_points("\n".join(lines)))
    except (ValueError, IndexError, KeyError):  # what the parser raises on a malformed line
        return Failed(Outcome.MALFORMED, "not in the Prometheus text format")


def _lines(text: str, wanted: frozenset[str]) -> Iterator[str]:
    for line in text.split("\n"):
        name = line[: 256 if (end := line.find("{", 0, 257)) < 0 else end].split(None, 1)
        if name and name[0] in wanted:
            yield line


def _points(text: str) -> Iterator[Point]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield Point(sample.name, tuple(sorted(sample.labels.items())), float(sample.value))
