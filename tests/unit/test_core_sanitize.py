"""Untrusted samples become a clean table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.sanitize import LIMITS, tabulate
from controlplane.model.signals import Readings, Sample, Signal, SignalTable

ENDPOINTS = ("10.0.0.1:80", "10.0.0.2:80")


def read(*samples: Sample, now: float = 100.0) -> SignalTable:
    return tabulate(Readings("chat", 100.0, samples), ENDPOINTS, stale_after_seconds=60.0, now=now)


@pytest.mark.fault("R5")
@pytest.mark.parametrize(
    ("signal", "value", "age", "reason"),
    [
        ("running", math.nan, 1, "nan"),
        ("running", math.inf, 1, "infinite"),
        ("running", -math.inf, 1, "infinite"),
        ("running", -1, 1, "negative"),
        ("running", 2e6, 1, "absurd"),
        ("kv_usage_ratio", 1.06, 1, "absurd"),
        ("gpu_utilization_ratio", 93, 1, "absurd"),
        ("ttft_p90_seconds", 3601, 1, "absurd"),
        ("own", 1e16, 1, "absurd"),
        ("own", -1e16, 1, "absurd"),
        ("running", 1, 61, "stale"),
        ("running", 1, math.nan, "stale"),
        ("running", 1, math.inf, "stale"),
        ("running", 1, -6, "future"),
        ("running", 1, -math.inf, "future"),
    ],
)
def test_a_sample_that_cannot_be_believed_is_dropped_with_a_reason(
    signal: str, value: float, age: float, reason: str
) -> None:
    table = read(Sample(ENDPOINTS[0], signal, value, age), Sample(ENDPOINTS[1], signal, 0.5, 1.0))
    assert [(drop.endpoint, drop.signal, drop.reason) for drop in table.drops] == [
        (ENDPOINTS[0], signal, reason)
    ]
    assert np.isnan(table.column(signal)[0])
    assert table.column(signal)[1] == 0.5


def test_tolerances() -> None:
    table = read(
        Sample(ENDPOINTS[0], "kv_usage_ratio", 1.04, 1.0),
        Sample(ENDPOINTS[0], "waiting", 0.0, -4.0),
        Sample(ENDPOINTS[0], "own", -3.0, 60.0),
    )
    assert not table.drops
    assert table.column("kv_usage_ratio")[0] == 1.0
    assert table.age_seconds[0, table.signals.index("waiting")] == 0.0
    assert table.column("own")[0] == -3.0


def test_an_unknown_endpoint_is_dropped() -> None:
    table = read(Sample("10.9.9.9:80", "running", 1.0, 1.0))
    assert table.drops[0].reason == "unknown_endpoint"
    assert np.isnan(table.values).all()


@given(st.permutations([(5.0, 3.0), (7.0, 2.0), (6.0, 2.0), (math.nan, 1.0)]))
def test_of_duplicates_the_newest_stays_whatever_the_order(samples: list[tuple[float, float]]) -> None:
    table = read(*(Sample(ENDPOINTS[0], "running", value, age) for value, age in samples))
    assert table.column("running")[0] == 6.0
    assert sorted(drop.reason for drop in table.drops) == ["duplicate", "duplicate", "nan"]


def test_cached_readings_age_until_they_are_stale() -> None:
    sample = Sample(ENDPOINTS[0], "running", 5.0, 10.0)
    younger, older = read(sample, now=149.0), read(sample, now=151.0)
    assert younger.age_seconds[0, younger.signals.index("running")] == 59.0
    assert older.drops[0].reason == "stale"


@pytest.mark.fault("R5")
@given(
    st.lists(
        st.builds(
            Sample,
            endpoint=st.sampled_from([*ENDPOINTS, "x"]),
            signal=st.sampled_from([*map(str, Signal), "own", ""]),
            value=st.floats(),
            age_seconds=st.floats(),
        ),
        max_size=12,
    ),
)
@settings(max_examples=150, deadline=None)
def test_every_sample_is_in_the_table_or_among_the_drops(samples: list[Sample]) -> None:
    table = read(*samples)
    known = int(np.isfinite(table.values).sum())
    assert known + len(table.drops) == len(samples)
    assert (np.isnan(table.values) == np.isnan(table.age_seconds)).all()
    ages = table.age_seconds[np.isfinite(table.age_seconds)]
    assert ((ages >= 0) & (ages <= 60)).all()


def test_every_signal_has_a_limit() -> None:
    assert set(LIMITS) == set(Signal)
