"""Evaluating a signal's expression over one scrape target's window.

Rates differ from PromQL's in one point, on purpose: they divide by the time that samples really
cover, where PromQL divides by the whole window, so that a target seen for ten seconds does not look
six times slower than it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from controlplane.sources.measures import (
    Difference,
    Expression,
    Gauge,
    Increase,
    Leaf,
    Quantile,
    Rate,
    Ratio,
    Series,
    Sum,
)
from controlplane.sources.window import Part, Scrape, Window, merged


class Evaluation:
    """One target at one moment."""

    def __init__(self, window: Window, *, now: float) -> None:
        """Look at `window` as of `now` (monotonic seconds)."""
        self._window = window
        recent = [scrape for scrape in window.scrapes if scrape.at_seconds >= now - window.span_seconds]
        # When reads come further apart than the window, two of them still make a rate.
        self._scrapes = recent if len(recent) > 1 else list(window.scrapes)[-2:]

    def value(self, expression: Expression) -> float | None:
        """Compute an expression.

        `None`: the target has no such series, or not for long enough. NaN: it has, and there was
        nothing to measure.
        """
        match expression:
            case Sum(terms):
                return _sum(self.value(term) for term in terms)
            case Difference(left, right):
                whole, taken = self.value(left), self.value(right)
                return None if whole is None else whole - (taken or 0.0)
            case Ratio(top, bottom):
                return _ratio(self.value(top), self.value(bottom))
            case Gauge() | Rate() | Increase() | Quantile():
                return self._leaf(expression)
            case _:
                assert_never(expression)

    def _leaf(self, leaf: Leaf) -> float | None:
        if isinstance(leaf, Gauge):
            return self._window.gauges.get(leaf.series)
        changes = list(self._changes(leaf.series))
        if not changes:
            return None
        match leaf:
            case Quantile(_, wanted):
                return quantile(wanted, _bounded((part, grown) for part, grown, _ in changes))
            case Rate(series):
                return merged(series, (grown / seconds for _, grown, seconds in changes))
            case Increase(series):
                return merged(series, (self._increase(grown, seconds) for _, grown, seconds in changes))

    def _changes(self, series: Series) -> Iterator[tuple[Part, float, float]]:
        """Give each running total's growth, and the seconds that it took."""
        for part, channel in self._window.channels.get(series, {}).items():
            first = _first(self._scrapes, channel)
            last = _first(reversed(self._scrapes), channel)
            if first is None or last is None or last.at_seconds <= first.at_seconds:
                continue
            grown = last.totals[channel] - first.totals[channel]
            yield part, grown, last.at_seconds - first.at_seconds

    def _increase(self, grown: float, seconds: float) -> float:
        """Extrapolate to the whole window, by one scrape interval at most."""
        interval = seconds / max(1, len(self._scrapes) - 1)
        return grown * min(self._window.span_seconds, seconds + interval) / seconds


def quantile(wanted: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Estimate a quantile from a histogram's (upper bound, cumulative count) pairs.

    The rule is that of PromQL's ``histogram_quantile``: linear inside a bucket, the first bucket
    begins at 0, and a quantile in the last one is the last finite bound. NaN without observations
    or without an infinite bucket.
    """
    ordered = sorted(buckets)
    if len(ordered) < 2 or not math.isinf(ordered[-1][0]):  # noqa: PLR2004 - a finite bound and infinity
        return math.nan
    bounds = [bound for bound, _ in ordered]
    counts = _rising(count for _, count in ordered)
    if counts[-1] <= 0:
        return math.nan
    rank = wanted * counts[-1]
    place = next(i for i, count in enumerate(counts) if count >= rank or i == len(counts) - 1)
    if place == len(counts) - 1:
        return bounds[-2]
    if place == 0 and bounds[0] <= 0:
        return bounds[0]
    below, start = (counts[place - 1], bounds[place - 1]) if place else (0.0, 0.0)
    inside = counts[place] - below
    return start + (bounds[place] - start) * ((rank - below) / inside) if inside else bounds[place]


def _rising(counts: Iterable[float]) -> list[float]:
    """Make cumulative counts monotonic, as PromQL does: buckets are not scraped atomically."""
    rising: list[float] = []
    for count in counts:
        rising.append(max(count, rising[-1]) if rising else count)
    return rising


def _bounded(buckets: Iterable[tuple[Part, float]]) -> list[tuple[float, float]]:
    return [(bound, grown) for bound, grown in buckets if isinstance(bound, float)]


def _first(scrapes: Iterable[Scrape], channel: int) -> Scrape | None:
    for scrape in scrapes:
        if channel < len(scrape.totals) and not math.isnan(scrape.totals[channel]):
            return scrape
    return None


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    present = [value for value in found if value is not None]
    return sum(present) if len(present) == len(found) else None


def _ratio(top: float | None, bottom: float | None) -> float | None:
    if top is None or bottom is None:
        return None
    return top / bottom if bottom else math.nan
