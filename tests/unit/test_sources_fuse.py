"""The fuse: when a source counts as degraded, and how often it is tried then."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controlplane.config import FuseSettings
from controlplane.model.health import FuseState
from controlplane.sources.fuse import Fuse, FuseMachine, FuseMetrics, backoff_seconds

SETTINGS = FuseSettings()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def machine() -> FuseMachine:
    return FuseMachine(settings=SETTINGS, since_seconds=0.0).on_success(0.0)


def make_fuse(clock: Clock, registry: CollectorRegistry, name: str = "consul") -> Fuse:
    return Fuse(
        name=name, settings=SETTINGS, clock=clock, metrics=FuseMetrics(registry), random=lambda: 0.5
    )


def test_five_failures_in_a_row_degrade_and_four_do_not() -> None:
    fuse = machine()
    for second in range(4):
        fuse = fuse.on_failure(float(second), "refused", draw=0.5)
    assert fuse.state is FuseState.NORMAL
    assert fuse.retry_at_seconds == 3.0

    fuse = fuse.on_failure(4.0, "refused", draw=0.5)

    assert fuse.state is FuseState.DEGRADED
    assert fuse.since_seconds == 4.0
    assert fuse.retry_at_seconds == 4.0 + SETTINGS.retry_min_seconds


def test_half_a_minute_of_failure_degrades_without_another_failure() -> None:
    fuse = machine().on_failure(60.0, "timed out", draw=0.5)
    assert fuse.check(89.9).state is FuseState.NORMAL
    assert fuse.check(90.0).state is FuseState.DEGRADED


def test_the_time_counts_from_the_first_failure_of_a_run() -> None:
    fuse = machine().on_failure(60.0, "timed out", draw=0.5).on_failure(85.0, "timed out", draw=0.5)
    assert fuse.check(89.9).state is FuseState.NORMAL
    assert fuse.check(90.0).state is FuseState.DEGRADED


def test_silence_after_a_success_is_not_failure() -> None:
    assert machine().check(1e6).state is FuseState.NORMAL


def test_a_source_that_never_answered_degrades() -> None:
    fuse = FuseMachine(settings=SETTINGS, since_seconds=10.0)
    assert fuse.check(39.9).state is FuseState.NORMAL
    assert fuse.check(40.0).state is FuseState.DEGRADED


def test_one_success_returns_to_normal_and_starts_the_count_again() -> None:
    fuse = machine()
    for second in range(9):
        fuse = fuse.on_failure(float(second), "refused", draw=0.5)

    fuse = fuse.on_success(50.0)

    assert (fuse.state, fuse.failures, fuse.since_seconds) == (FuseState.NORMAL, 0, 50.0)
    assert fuse.retry_at_seconds == 50.0
    assert fuse.on_failure(51.0, "again", draw=0.5).state is FuseState.NORMAL


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["success", "failure", "check"]), st.floats(0.0, 40.0)), max_size=40
    ),
    draw=st.floats(0.0, 1.0, exclude_max=True),
)
def test_delay_is_bounded_and_state_follows_the_rule(steps: list[tuple[str, float]], draw: float) -> None:
    fuse, now, run = machine(), 0.0, 0
    for step, pause in steps:
        now += pause
        if step == "success":
            fuse, run = fuse.on_success(now), 0
            assert fuse.state is FuseState.NORMAL
        elif step == "failure":
            fuse, run = fuse.on_failure(now, "x" * 1000, draw=draw), run + 1
            assert len(fuse.last_error) <= 500
        else:
            fuse = fuse.check(now)
        assert fuse.failures == run
        assert run < SETTINGS.degraded_after_failures or fuse.state is FuseState.DEGRADED
        assert fuse.retry_at_seconds - now <= SETTINGS.retry_max_seconds
        assert run > 0 or fuse.state is FuseState.NORMAL


@settings(max_examples=100)
@given(attempt=st.integers(0, 10_000), draw=st.floats(0.0, 1.0, exclude_max=True))
def test_backoff_stays_within_its_jitter(attempt: int, draw: float) -> None:
    delay = backoff_seconds(attempt, minimum_seconds=1, maximum_seconds=60, jitter_ratio=0.2, draw=draw)
    exact = min(60.0, 2.0 ** min(attempt, 10))
    assert 0.8 * exact - 1e-9 <= delay <= min(60.0, 1.2 * exact + 1e-9)


def test_fuse_tells_logs_and_metrics_of_start_end_and_error() -> None:
    clock, registry = Clock(), CollectorRegistry()
    fuse = make_fuse(clock, registry)
    labels = {"source": "consul"}
    assert registry.get_sample_value("trimtab_source_degraded", labels) == 0

    with capture_logs() as events:
        for _ in range(5):
            clock.now += 1
            fuse.record_failure("connection refused")
        assert fuse.is_degraded
        assert not fuse.may_try()
        assert fuse.delay_seconds() == pytest.approx(5.0)
        assert registry.get_sample_value("trimtab_source_degraded", labels) == 1
        assert registry.get_sample_value("trimtab_source_age_seconds", labels) == 5.0
        clock.now += 5
        assert fuse.may_try()
        fuse.record_success()

    assert [event["event"] for event in events] == ["source_degraded", "source_recovered"]
    assert events[0]["error"] == "connection refused"
    assert (events[1]["start"], events[1]["end"], events[1]["failures"]) == (105.0, 110.0, 5)
    assert registry.get_sample_value("trimtab_source_degraded", labels) == 0
    assert registry.get_sample_value("trimtab_source_failures_total", labels) == 5
    assert registry.get_sample_value("trimtab_source_age_seconds", labels) == 0


def test_health_notices_time_passing() -> None:
    clock = Clock()
    fuse = make_fuse(clock, CollectorRegistry(), name="files")
    clock.now += 30
    health = fuse.health()
    assert (health.name, health.state, health.last_success_seconds) == ("files", FuseState.DEGRADED, None)


def test_two_fuses_share_one_registry() -> None:
    clock, registry = Clock(), CollectorRegistry()
    metrics = FuseMetrics(registry)
    for name in ("consul-kv", "consul-catalog"):
        Fuse(name=name, settings=SETTINGS, clock=clock, metrics=metrics, random=lambda: 0.0)
    assert registry.get_sample_value("trimtab_source_degraded", {"source": "consul-kv"}) == 0
