"""The last minute of one scrape target: what Prometheus would remember of it, and no more.

Counters are kept as running totals that never fall: a value below the one before means that the
process restarted, and counts from zero, per series, as PromQL's ``rate`` has it. The totals of one
scrape are one packed array, so a target with four histograms costs about a kilobyte per scrape.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from controlplane.sources.exposition import Labels, Point
from controlplane.sources.measures import Expression, Gauge, Quantile, Series, leaves

MAX_SCRAPES = 64
"""Scrapes kept in a window; when they come faster, the window is thinned."""

MAX_CHANNELS = 20_000
"""Running totals of one target; a target whose labels change without end starts over."""

Part: TypeAlias = float | Labels | None
"""What tells the running totals of one `Series` apart: a bucket's bound, all labels, or nothing."""


class LeafIndex:
    """Which leaves of a catalogue read which metric; made once, shared by all targets."""

    def __init__(self, expressions: Iterable[Expression]) -> None:
        gauges: dict[str, dict[Series, None]] = defaultdict(dict)
        totals: dict[str, dict[tuple[Series, bool], None]] = defaultdict(dict)
        for leaf in (leaf for expression in expressions for leaf in leaves(expression)):
            series = leaf.series
            match leaf:
                case Gauge():
                    gauges[series.metric][series] = None
                case Quantile():
                    totals[f"{series.metric}_bucket"][series, True] = None
                case _:
                    totals[series.metric][series, False] = None
        self.gauges = {metric: tuple(found) for metric, found in gauges.items()}
        self.totals = {metric: tuple(found) for metric, found in totals.items()}
        self.metrics = frozenset(self.gauges) | frozenset(self.totals)


@dataclass(frozen=True, slots=True)
class Scrape:
    """Running totals at one moment, by channel number; NaN where the series was not on the page."""

    at_seconds: float
    totals: array[float]


class Window:
    """Scrapes of one target. `span_seconds` is the window of rates; times are monotonic seconds."""

    def __init__(self, index: LeafIndex, *, span_seconds: float) -> None:
        self.span_seconds = span_seconds
        self.scrapes: deque[Scrape] = deque()
        self.gauges: dict[Series, float] = {}
        self.channels: dict[Series, dict[Part, int]] = defaultdict(dict)
        self._index = index
        self._running = array("d")
        self._previous: dict[tuple[str, Labels], float] = {}

    def observe(self, at_seconds: float, points: Iterable[Point]) -> None:
        """Take in one scrape; the same one twice counts once."""
        if self.scrapes and at_seconds <= self.scrapes[-1].at_seconds:
            return
        if len(self._running) > MAX_CHANNELS:
            self._start_over()
        shards: dict[Series, dict[Labels, float]] = defaultdict(dict)
        latest: dict[tuple[str, Labels], float] = {}
        seen: set[int] = set()
        for point in points:
            labels = dict(point.labels)
            for series in self._index.gauges.get(point.metric, ()):
                if series.accepts(labels):
                    _keep_largest(shards[series], _shard(series, point.labels), point.value)
            if point.metric in self._index.totals and math.isfinite(point.value):
                latest[point.metric, point.labels] = point.value
                self._count(point, labels, seen)
        self._previous = latest
        self.gauges = {series: merged(series, found.values()) for series, found in shards.items()}
        self._store(at_seconds, seen)

    def _count(self, point: Point, labels: Mapping[str, str], seen: set[int]) -> None:
        # A series seen for the first time has grown by nothing: what it holds happened before.
        before = self._previous.get((point.metric, point.labels), point.value)
        grown = point.value - before if point.value >= before else point.value
        for series, is_bucket in self._index.totals[point.metric]:
            part = _part(series, point.labels, labels, is_bucket=is_bucket)
            if not series.accepts(labels) or (is_bucket and part is None):
                continue
            channels = self.channels[series]
            channel = channels.setdefault(part, len(self._running))
            if channel == len(self._running):
                self._running.append(0.0)
            self._running[channel] += grown
            seen.add(channel)

    def _store(self, at_seconds: float, seen: set[int]) -> None:
        totals = array("d", self._running)
        for channel in range(len(totals)):
            if channel not in seen:
                totals[channel] = math.nan
        if len(self.scrapes) > 1 and self._is_too_close(self.scrapes[-2], self.scrapes[-1]):
            self.scrapes.pop()
        self.scrapes.append(Scrape(at_seconds, totals))
        while len(self.scrapes) > 2 and self.scrapes[0].at_seconds < at_seconds - self.span_seconds:  # noqa: PLR2004 - a rate needs two
            self.scrapes.popleft()

    def _is_too_close(self, first: Scrape, second: Scrape) -> bool:
        return second.at_seconds - first.at_seconds < self.span_seconds / MAX_SCRAPES

    def _start_over(self) -> None:
        self.scrapes.clear()
        self.channels.clear()
        self._previous = {}
        self._running = array("d")


def merged(series: Series, values: Iterable[float]) -> float:
    """Join the values of several series by the declared rule.

    As in PromQL, a NaN spoils a sum, and a maximum passes it over unless there is nothing else.
    """
    found = list(values)
    if series.merge == "sum":
        return sum(found)
    return max((value for value in found if not math.isnan(value)), default=math.nan)


def _shard(series: Series, labels: Labels) -> Labels:
    """Name the shard of a series: without declared shards, every series is its own."""
    return tuple(pair for pair in labels if pair[0] in series.shards) if series.shards else labels


def _keep_largest(found: dict[Labels, float], shard: Labels, value: float) -> None:
    before = found.get(shard, math.nan)
    if math.isnan(before) or value > before:
        found[shard] = value


def _part(series: Series, all_labels: Labels, labels: Mapping[str, str], *, is_bucket: bool) -> Part:
    if is_bucket:
        return _bound(labels.get("le", ""))
    return all_labels if series.merge == "max" else None


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound
