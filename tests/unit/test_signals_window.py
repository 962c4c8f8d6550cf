"""Rates, increases and quantiles over scrapes, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.sources.evaluation import Evaluation, quantile
from controlplane.sources.exposition import Point
from controlplane.sources.measures import (
    Difference,
    Expression,
    Gauge,
    Increase,
    Matcher,
    Merge,
    Quantile,
    Rate,
    Ratio,
    Series,
    Sum,
)
from controlplane.sources.window import MAX_CHANNELS, MAX_SCRAPES, LeafIndex, Window

REQUESTS = Rate(Series("requests_total"))


def point(metric: str, value: float, **labels: str) -> Point:
    return Point(metric, tuple(sorted(labels.items())), value)


def value_after(
    expression: Expression, *scrapes: tuple[float, list[Point]], span: float = 60
) -> float | None:
    window = Window(LeafIndex([expression]), span_seconds=span)
    for at_seconds, points in scrapes:
        window.observe(at_seconds, points)
    return Evaluation(window, now=scrapes[-1][0]).value(expression)


def test_a_rate_is_the_growth_over_the_time_covered() -> None:
    scrapes = [(at, [point("requests_total", 100 + 3 * at)]) for at in (0.0, 5.0, 10.0)]
    assert value_after(REQUESTS, *scrapes) == pytest.approx(3.0)


def test_an_increase_is_extrapolated_by_one_interval_and_no_more() -> None:
    scrapes = [(at, [point("requests_total", 3 * at)]) for at in (0.0, 5.0, 10.0)]
    # 30 in 10 s; the fourth interval is assumed to have been like the others.
    assert value_after(Increase(Series("requests_total")), *scrapes) == pytest.approx(45.0)
    many = [(at, [point("requests_total", 3 * at)]) for at in range(0, 100, 5)]
    assert value_after(Increase(Series("requests_total")), *many) == pytest.approx(180.0)


def test_a_counter_that_falls_was_reset_and_counts_from_zero() -> None:
    scrapes = [(0.0, [point("requests_total", 100)]), (10.0, [point("requests_total", 20)])]
    assert value_after(REQUESTS, *scrapes) == pytest.approx(2.0)


def test_a_reset_of_one_series_is_not_hidden_by_the_growth_of_another() -> None:
    before = [point("requests_total", 100, engine="0"), point("requests_total", 50, engine="1")]
    after = [point("requests_total", 10, engine="0"), point("requests_total", 250, engine="1")]
    assert value_after(REQUESTS, (0.0, before), (10.0, after)) == pytest.approx(21.0)


def test_what_a_new_series_holds_did_not_happen_in_the_window() -> None:
    first = [point("requests_total", 10, reason="stop")]
    second = [point("requests_total", 20, reason="stop"), point("requests_total", 900, reason="length")]
    assert value_after(REQUESTS, (0.0, first), (10.0, second)) == pytest.approx(1.0)


def test_one_scrape_makes_no_rate_and_an_absent_metric_no_value() -> None:
    assert value_after(REQUESTS, (0.0, [point("requests_total", 1)])) is None
    assert value_after(REQUESTS, (0.0, []), (5.0, [])) is None
    assert value_after(Gauge(Series("depth")), (0.0, [])) is None


def test_samples_before_the_window_do_not_count() -> None:
    scrapes = [
        (at, [point("requests_total", at if at < 50 else 10 * at)]) for at in map(float, range(0, 120, 5))
    ]
    assert value_after(REQUESTS, *scrapes, span=30) == pytest.approx(10.0)


def test_two_reads_further_apart_than_the_window_still_make_a_rate() -> None:
    scrapes = [(at, [point("requests_total", 2 * at)]) for at in (0.0, 90.0, 180.0)]
    assert value_after(REQUESTS, *scrapes, span=30) == pytest.approx(2.0)


@pytest.mark.parametrize(("merge", "expected"), [("sum", 7.0), ("max", 4.0)])
def test_gauges_merge_by_the_declared_rule(merge: Merge, expected: float) -> None:
    points = [point("depth", 3, engine="0"), point("depth", 4, engine="1")]
    assert value_after(Gauge(Series("depth", merge=merge)), (0.0, points)) == expected


def test_ranks_that_repeat_a_figure_count_once_and_shards_add_up() -> None:
    points = [
        point("depth", value, dp_rank=dp, tp_rank=tp)
        for dp, value in (("0", 3.0), ("1", 5.0))
        for tp in ("0", "1")
    ]
    assert value_after(Gauge(Series("depth", shards=("dp_rank",))), (0.0, points)) == 8.0


def test_the_largest_of_counters_is_the_largest_rate_and_not_the_largest_counter() -> None:
    series = Series("requests_total", merge="max")
    before = [point("requests_total", 9000, model="old"), point("requests_total", 0, model="new")]
    after = [point("requests_total", 9010, model="old"), point("requests_total", 40, model="new")]
    assert value_after(Rate(series), (0.0, before), (10.0, after)) == pytest.approx(4.0)


def test_matchers_have_promqls_meaning() -> None:
    series = Series("depth", (Matcher("kind", "used"), Matcher("model", "x", is_equal=False)))
    points = [
        point("depth", 1, kind="used"),
        point("depth", 2, kind="used", model="x"),
        point("depth", 4, kind="free"),
        point("depth", 8, kind="used", model="y"),
    ]
    assert value_after(Gauge(series), (0.0, points)) == 9.0


def test_sums_differences_and_ratios() -> None:
    a, b = Gauge(Series("a")), Gauge(Series("b"))
    both = [(0.0, [point("a", 6), point("b", 2)])]
    only_a = [(0.0, [point("a", 6)])]
    assert value_after(Sum((a, b)), *both) == 8
    assert value_after(Sum((a, b)), *only_a) is None
    assert value_after(Difference(a, b), *both) == 4
    assert value_after(Difference(a, b), *only_a) == 6
    assert value_after(Ratio(a, b), *both) == 3
    assert value_after(Ratio(a, b), *only_a) is None
    nothing = value_after(Ratio(a, b), (0.0, [point("a", 0), point("b", 0)]))
    assert nothing is not None
    assert math.isnan(nothing)


def test_a_quantile_over_the_window_uses_growth_and_not_lifetime_counts() -> None:
    expression = Quantile(Series("latency"), 0.5)
    before = [point("latency_bucket", 1000, le="0.1"), point("latency_bucket", 1000, le="+Inf")]
    before.insert(1, point("latency_bucket", 1000, le="1"))
    after = [point("latency_bucket", 1000, le="0.1"), point("latency_bucket", 1020, le="+Inf")]
    after.insert(1, point("latency_bucket", 1020, le="1"))
    # Twenty new observations, all between 0.1 and 1: the median lies halfway.
    assert value_after(expression, (0.0, before), (10.0, after)) == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("wanted", "buckets", "expected"),
    [
        (0.5, [(1.0, 10), (2.0, 20), (math.inf, 20)], 1.0),
        (0.9, [(1.0, 10), (2.0, 20), (math.inf, 20)], 1.8),
        (0.25, [(1.0, 10), (2.0, 20), (math.inf, 20)], 0.5),
        (0.99, [(1.0, 10), (2.0, 20), (math.inf, 40)], 2.0),
        (0.5, [(-1.0, 10), (2.0, 10), (math.inf, 10)], -1.0),
        (0.5, [(2.0, 20), (1.0, 10), (math.inf, 20)], 1.0),
        (0.9, [(1.0, 10), (2.0, 8), (4.0, 20), (math.inf, 20)], 3.6),
    ],
)
def test_quantiles_by_hand(wanted: float, buckets: list[tuple[float, float]], expected: float) -> None:
    assert quantile(wanted, buckets) == pytest.approx(expected)


@pytest.mark.parametrize("buckets", [[], [(math.inf, 5)], [(1.0, 0), (math.inf, 0)], [(1.0, 4), (2.0, 5)]])
def test_a_histogram_that_says_nothing_gives_nan(buckets: list[tuple[float, float]]) -> None:
    assert math.isnan(quantile(0.9, buckets))


@given(
    st.lists(st.floats(0.001, 100), min_size=1, max_size=12, unique=True),
    st.lists(st.integers(0, 1000), min_size=13, max_size=13),
    st.floats(0.01, 0.99),
)
def test_a_quantile_lies_within_the_finite_bounds(
    bounds: list[float], grown: list[int], wanted: float
) -> None:
    counts = [float(sum(grown[: i + 1])) for i in range(len(bounds) + 1)]
    found = quantile(wanted, list(zip([*sorted(bounds), math.inf], counts, strict=True)))
    assert math.isnan(found) if counts[-1] == 0 else 0 <= found <= max(bounds) * (1 + 1e-9)


def test_memory_is_bounded_in_scrapes_and_in_series() -> None:
    window = Window(LeafIndex([REQUESTS, Rate(Series("models_total", merge="max"))]), span_seconds=60)
    for tick in range(2000):
        window.observe(tick * 0.1, [point("requests_total", 5 * tick)])
    assert len(window.scrapes) <= MAX_SCRAPES + 3
    assert Evaluation(window, now=199.9).value(REQUESTS) == pytest.approx(50.0, rel=0.01)
    for tick in range(30):
        names = range(1000 * tick, 1000 * (tick + 1))
        window.observe(200.0 + tick, [point("models_total", 1, model=str(name)) for name in names])
    assert sum(len(parts) for parts in window.channels.values()) <= MAX_CHANNELS + 1000


@given(st.lists(st.tuples(st.floats(), st.text(max_size=3)), max_size=20))
def test_no_value_and_no_bucket_label_breaks_a_window(found: list[tuple[float, str]]) -> None:
    expressions: list[Expression] = [
        Quantile(Series("h"), 0.9),
        Rate(Series("c")),
        Gauge(Series("g")),
        Ratio(Gauge(Series("g")), REQUESTS),
    ]
    window = Window(LeafIndex(expressions), span_seconds=10)
    for at_seconds, scale in ((0.0, 1.0), (1.0, 2.0)):
        points = [
            point(metric, value * scale, le=label)
            for value, label in found
            for metric in ("h_bucket", "c", "g", "requests_total")
        ]
        window.observe(at_seconds, points)
    for expression in expressions:
        Evaluation(window, now=1.0).value(expression)
