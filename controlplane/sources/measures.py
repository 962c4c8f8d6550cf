"""How a signal is computed from series: a small expression tree with two readers.

`promql` renders a tree as PromQL, `window` evaluates the same tree over scraped samples. One
catalogue, two ways to the same number; a test holds them against each other on a real Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Merge: TypeAlias = Literal["sum", "max"]


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label condition, with PromQL's meaning: an absent label equals the empty string."""

    label: str
    value: str
    is_equal: bool = True

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a series with these labels meets the condition."""
        return (labels.get(self.label, "") == self.value) is self.is_equal


@dataclass(frozen=True, slots=True)
class Series:
    """The series of one metric that describe one endpoint, and how they become one number.

    `merge` joins them. With `shards`, series that differ only in *other* labels repeat one figure
    (SGLang exposes a gauge once per tensor-parallel rank): the largest of each shard counts, and
    `merge` joins the shards.
    """

    metric: str
    matchers: tuple[Matcher, ...] = ()
    merge: Merge = "sum"
    shards: tuple[str, ...] = ()

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a series of this metric with these labels belongs here."""
        return all(matcher.accepts(labels) for matcher in self.matchers)


@dataclass(frozen=True, slots=True)
class Gauge:
    """The last value."""

    series: Series


@dataclass(frozen=True, slots=True)
class Rate:
    """A counter's increase per second, over the signal window."""

    series: Series


@dataclass(frozen=True, slots=True)
class Increase:
    """A counter's increase over the signal window."""

    series: Series


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile (0 to 1) of what a histogram observed in the signal window.

    `series.metric` is the histogram's base name, without ``_bucket``.
    """

    series: Series
    quantile: float


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of terms that must all be there."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """`left` less `right`; an absent `right` counts as zero."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Ratio:
    """`top` over `bottom`; NaN when the bottom is zero."""

    top: Expression
    bottom: Expression


Leaf: TypeAlias = Gauge | Rate | Increase | Quantile
Expression: TypeAlias = Leaf | Sum | Difference | Ratio


@dataclass(frozen=True, slots=True)
class Measure:
    """An expression, and the factor from the metric's unit to Trimtab's (1e-6 for microseconds)."""

    expression: Expression
    scale: float = 1.0


Group: TypeAlias = Literal["engine", "envoy", "dcgm"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to read one signal: alternatives newest first, the first that an endpoint has wins.

    The group says who exposes the metrics, and so how their series join to endpoints.
    """

    signal: str
    group: Group
    measures: tuple[Measure, ...]


def leaves(expression: Expression) -> Iterator[Leaf]:
    """Walk an expression's leaves, left to right."""
    match expression:
        case Sum(terms):
            for term in terms:
                yield from leaves(term)
        case Difference(left, right) | Ratio(left, right):
            yield from leaves(left)
            yield from leaves(right)
        case _:
            yield expression


def metric_names(expression: Expression) -> tuple[str, ...]:
    """List the names on the wire that an expression reads, in order, without repeats."""
    names = (
        f"{leaf.series.metric}_bucket" if isinstance(leaf, Quantile) else leaf.series.metric
        for leaf in leaves(expression)
    )
    return tuple(dict.fromkeys(names))


def has_value_gaps(expression: Expression) -> bool:
    """Tell whether NaN is a normal result, meaning "nothing happened in the window".

    A quantile of no observations and a ratio over zero are NaN by arithmetic; a gauge that says NaN
    is a fault of its exporter.
    """
    return isinstance(expression, Quantile | Ratio)
