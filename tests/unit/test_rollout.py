"""The canary state machine, scenario by scenario."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from controlplane.core.rollout import parts_of
from controlplane.model.rollout import TOTAL_PARTS, CanaryStep, Phase, Verdict
from tests.support.rollout_driver import BAD, GOOD, NO_DATA, SPEC, Driver, subset

TEN_PERCENT, HALF = 10_000, 50_002


def test_parts_are_rounded_shares_of_a_constant_total() -> None:
    assert [parts_of(percent) for percent in (10, 50, 100, 1e-9)] == [TEN_PERCENT, HALF, TOTAL_PARTS, 1]


def test_a_good_canary_goes_all_the_way() -> None:
    driver = Driver()

    history = [driver.tick() for _ in range(10)]

    assert [(state.phase.value, state.canary_parts) for state in history] == [
        ("starting", TEN_PERCENT),
        ("progressing", TEN_PERCENT),  # first verdict: the hold begins
        ("progressing", TEN_PERCENT),
        ("progressing", HALF),  # 20 s of passing
        ("progressing", HALF),
        ("progressing", HALF),
        ("promoting", TOTAL_PARTS),
        ("promoted", TOTAL_PARTS),
        ("promoted", TOTAL_PARTS),
        ("promoted", TOTAL_PARTS),
    ]
    assert [kind for kind in driver.kinds if kind != "verdict"] == [
        "starting",
        "progressing",
        "step",
        "promoting",
        "promoted",
    ]


def test_the_start_waits_for_nine_nodes_in_ten() -> None:
    driver = Driver()
    driver.acked_ratio = 0.89
    assert [driver.tick().phase for _ in range(4)] == [Phase.STARTING] * 4
    assert "89%" in driver.state.reason

    driver.acked_ratio = 0.9
    assert driver.tick().phase is Phase.PROGRESSING


def test_the_start_waits_for_the_weight_to_be_published() -> None:
    driver = Driver()
    driver.is_acking = False
    assert [driver.tick().phase for _ in range(4)] == [Phase.STARTING] * 4
    assert driver.until("rolling_back").canary_parts == 0


def test_the_start_waits_for_requests() -> None:
    driver = Driver()
    driver.canary = subset(requests=19)
    driver.tick()
    assert driver.tick().phase is Phase.STARTING
    assert "19 canary requests in the window, 20 are needed" in driver.state.reason
    assert driver.state.last_verdict is Verdict.NO_DATA


@pytest.mark.parametrize(
    "phase", ["starting", "progressing", "paused by hand", "gate", "no data", "promoting"]
)
def test_a_breach_rolls_back_from_every_phase_in_the_same_tick(phase: str) -> None:
    # given a canary in that phase
    gated = replace(SPEC, steps=(CanaryStep(weight_percent=10, hold_seconds=0, gate=True),))
    driver = Driver(gated if phase == "gate" else SPEC)
    if phase == "promoting":
        driver.until("promoting")
    elif phase == "gate":
        assert "gate" in driver.until("paused").reason
    else:
        driver.until("starting" if phase == "starting" else "progressing")
    if phase == "paused by hand":
        driver.steer(desired="paused")
        assert driver.tick().phase is Phase.PAUSED
    if phase == "no data":
        driver.canary = NO_DATA
        assert driver.tick().phase is Phase.PAUSED
    assert driver.state.canary_parts > 0

    # when a verdict fails, when its limit is one
    driver.canary = subset(BAD)
    state = driver.tick()

    # then the weight is gone at once, and stays away
    assert (state.phase, state.canary_parts) == (Phase.ROLLING_BACK, 0)
    assert "`error_ratio` 0.5 is above 0.05" in state.reason
    driver.canary = subset()
    assert driver.tick().phase is Phase.ROLLED_BACK
    assert [driver.tick().canary_parts for _ in range(20)] == [0] * 20


def test_failures_are_counted_in_a_row_and_in_all() -> None:
    analysis = replace(SPEC.analysis, consecutive_failures=2, total_failures=3)
    driver = Driver(replace(SPEC, analysis=analysis))
    driver.until("progressing")

    for figures in (BAD, GOOD, BAD, GOOD):
        driver.canary = subset(figures)
        assert driver.tick().phase is Phase.PROGRESSING
    assert (driver.state.consecutive_failures, driver.state.total_failures) == (0, 2)

    driver.canary = subset(BAD)
    assert driver.tick().phase is Phase.ROLLING_BACK
    assert "3 failed verdicts in all" in driver.state.reason


def test_a_failed_verdict_starts_the_hold_again() -> None:
    driver = Driver(replace(SPEC, analysis=replace(SPEC.analysis, consecutive_failures=2)))
    driver.until("progressing")
    driver.tick()
    driver.canary = subset(BAD)
    driver.tick()
    driver.canary = subset()
    assert [driver.tick().canary_parts for _ in range(3)] == [TEN_PERCENT, TEN_PERCENT, HALF]


def test_verdicts_come_at_their_interval_only() -> None:
    driver = Driver(replace(SPEC, analysis=replace(SPEC.analysis, consecutive_failures=3)))
    driver.until("progressing")
    driver.canary = subset(BAD)
    for _ in range(9):
        driver.tick(seconds=1.0)
    assert driver.state.consecutive_failures == 0
    assert driver.tick(seconds=1.0).consecutive_failures == 1


def test_the_weight_rises_on_a_verdict_of_the_same_tick_only() -> None:
    driver = Driver()
    driver.until("progressing")
    driver.tick(seconds=19)
    assert driver.tick(seconds=1).canary_parts == TEN_PERCENT
    assert driver.state.reason == "waiting for the next verdict"
    driver.canary = subset(BAD)
    assert driver.tick(seconds=9).canary_parts == 0


@pytest.mark.fault("R36")
@pytest.mark.parametrize("requests", [100.0, 0.0, math.nan])
def test_r36_a_missing_slo_metric_holds_then_rolls_back(requests: float) -> None:
    driver = Driver()
    driver.until("progressing")
    driver.canary = subset({}, requests=requests)

    held = [driver.tick() for _ in range(6)]
    assert {(state.phase, state.canary_parts) for state in held} == {(Phase.PAUSED, TEN_PERCENT)}

    state = driver.tick()
    assert (state.phase, state.canary_parts) == (Phase.ROLLING_BACK, 0)
    assert "no verdict for 60 s" in state.reason


@pytest.mark.fault("R36")
def test_r36_a_metric_that_disappears_at_full_weight_is_not_promoted() -> None:
    driver = Driver()
    driver.until("promoting")
    driver.canary = NO_DATA
    phases = {driver.tick().phase for _ in range(6)}
    assert phases == {Phase.PROMOTING}
    assert driver.tick().phase is Phase.ROLLING_BACK


def test_data_that_comes_back_resumes_and_holds_anew() -> None:
    driver = Driver()
    driver.until("progressing")
    driver.canary = NO_DATA
    assert driver.tick().phase is Phase.PAUSED
    driver.canary = subset()
    assert [driver.tick().canary_parts for _ in range(3)] == [TEN_PERCENT, TEN_PERCENT, HALF]


def test_nodes_that_stop_acknowledging_hold_the_weight() -> None:
    driver = Driver()
    driver.until("progressing")
    driver.acked_ratio = 0.5
    assert driver.tick().phase is Phase.PAUSED
    driver.acked_ratio = 1.0
    assert driver.tick().phase is Phase.PROGRESSING
