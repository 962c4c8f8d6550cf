from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.sim.report import Answer, quantile, summarise


def answer(ended_at: float, **fields: object) -> Answer:
    base: dict[str, object] = {
        "session": "s1",
        "turn": 0,
        "began_at": ended_at - 1.0,
        "first_token_at": ended_at - 0.75,
        "status": 200,
        "server": "a",
        "version": "v1",
    }
    return Answer(ended_at=ended_at, **{**base, **fields})  # type: ignore[arg-type]


def test_nothing_gives_nan_and_zeros() -> None:
    report = summarise([], slice_seconds=1.0)

    assert (report.requests, report.errors, report.cache_hit_ratio, report.share("a")) == (0, 0, 0.0, 0.0)
    assert math.isnan(report.p99_seconds)
    assert len(report.slices) == 1


def test_figures_are_of_good_answers_that_ended_in_the_span() -> None:
    report = summarise(
        [
            answer(5.0),
            answer(10.0, cache_hit_ratio=0.5),
            answer(11.0, began_at=8.0, first_token_at=9.0, server="b", version="v2"),
            answer(12.0, status=503, error="http", began_at=0.0),
            answer(13.0, error="timeout", status=0),
            answer(20.0),
        ],
        since=10.0,
        until=20.0,
    )

    assert (report.requests, report.errors) == (4, 2)
    assert report.errors_by_kind == {"http": 1, "timeout": 1}
    assert (report.p50_seconds, report.p99_seconds) == (1.0, 3.0)
    assert (report.ttft_p50_seconds, report.ttft_p99_seconds) == (0.25, 1.0)
    assert report.cache_hit_ratio == 0.25
    assert (report.share("a"), report.share("b"), report.share("c")) == (0.5, 0.5, 0.0)


def test_sessions_that_changed_server_and_version_are_counted_once() -> None:
    report = summarise(
        [
            answer(1.0, session="x"),
            answer(2.0, session="x", server="b"),
            answer(3.0, session="x", server="b", version="v2"),
            answer(4.0, session="y"),
            answer(5.0, session="y", server="", version="", error="connection"),
        ]
    )

    assert (report.moved_sessions, report.flipped_sessions) == (1, 1)


@settings(max_examples=60, deadline=None)
@given(
    ends=st.lists(st.floats(0, 100), max_size=30),
    since=st.floats(-10, 50),
    length=st.floats(0.1, 100),
    slice_seconds=st.floats(0.5, 50),
)
def test_slices_divide_the_whole(
    ends: list[float], since: float, length: float, slice_seconds: float
) -> None:
    report = summarise(
        [answer(end) for end in ends], since=since, until=since + length, slice_seconds=slice_seconds
    )

    assert sum(piece.requests for piece in report.slices) == report.requests
    assert report.slices[0].since == report.since
    assert report.slices[-1].until == pytest.approx(report.until)
    for before, after in zip(report.slices, report.slices[1:], strict=False):
        assert before.until == pytest.approx(after.since)


def test_a_slice_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        summarise([], slice_seconds=0.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_is_the_least_value_that_enough_do_not_exceed(values: list[float], q: float) -> None:
    found = quantile(values, q)

    assert found in values
    assert sum(value <= found for value in values) >= q * len(values) - 1e-9
    assert sum(value < found for value in values) < max(1e-9, q * len(values)) + 1e-9 or found == min(
        values
    )
