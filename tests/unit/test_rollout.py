"""The canary state machine, scenario by scenario."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from controlplane.core.rollout import hash_of, parts_of
from controlplane.model.rollout import TOTAL_PARTS, CanaryStep, Phase, Verdict
from controlplane.model.strategy import Slo
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


@pytest.mark.fault(36)
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


@pytest.mark.fault(36)
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


@pytest.mark.parametrize("running", ["starting", "progressing", "paused", "promoting", "promoted"])
def test_abort_is_zero_in_the_same_step(running: str) -> None:
    driver = Driver()
    driver.until("progressing" if running == "paused" else running)
    if running == "paused":
        driver.steer(desired="paused")
        driver.tick()
    driver.steer(desired="aborted")

    state = driver.tick()
    assert (state.phase, state.canary_parts) == (Phase.ROLLING_BACK, 0)
    assert driver.tick().phase is Phase.ROLLED_BACK

    driver.steer(desired="run")
    assert driver.tick().phase is Phase.ROLLED_BACK
    driver.steer(retry=1)
    assert (driver.tick().phase, driver.state.canary_parts) == (Phase.STARTING, TEN_PERCENT)


def test_abort_while_idle_says_so_once() -> None:
    driver = Driver()
    driver.steer(desired="aborted")
    for _ in range(3):
        assert driver.tick().phase is Phase.IDLE
    assert driver.state.reason == "abort: nothing is running"
    assert driver.kinds == ["note"]
    driver.steer(desired="run")
    assert driver.tick().phase is Phase.STARTING


def test_a_gate_waits_for_people() -> None:
    driver = Driver(replace(SPEC, steps=(replace(SPEC.steps[0], gate=True), SPEC.steps[1])))
    driver.until("paused")
    assert [driver.tick().canary_parts for _ in range(20)] == [TEN_PERCENT] * 20

    # A document without the gate goes on where it stands.
    driver.spec = SPEC
    assert driver.tick().canary_parts == HALF


def test_wanted_promotion_skips_steps_and_gates_but_not_the_verdict() -> None:
    driver = Driver(replace(SPEC, steps=(replace(SPEC.steps[0], gate=True), SPEC.steps[1])))
    driver.until("progressing")
    driver.steer(desired="promoted")
    driver.canary = NO_DATA
    assert driver.tick().canary_parts == TEN_PERCENT
    driver.canary = subset(healthy=2)
    assert driver.tick().canary_parts == TEN_PERCENT
    assert "2 of 4 canary endpoints are healthy" in driver.state.reason
    driver.canary = subset()
    assert (driver.tick().phase, driver.state.canary_parts) == (Phase.PROMOTING, TOTAL_PARTS)


def test_pause_and_resume() -> None:
    driver = Driver()
    driver.steer(desired="paused")
    assert driver.tick().phase is Phase.IDLE
    assert "paused" in driver.state.reason
    driver.steer(desired="run")
    driver.until("progressing")
    driver.steer(desired="paused")
    assert {driver.tick().canary_parts for _ in range(20)} == {TEN_PERCENT}
    driver.steer(desired="run")
    assert driver.tick().canary_parts == HALF


@pytest.mark.parametrize(
    ("canary", "baseline", "reason"),
    [
        (subset(endpoints=0, healthy=0), subset(), "no endpoint matches `canary` {version=v2}"),
        (subset(), subset(endpoints=0, healthy=0), "no endpoint is left for `baseline`"),
    ],
)
def test_subsets_without_endpoints_do_not_start(canary: object, baseline: object, reason: str) -> None:
    driver = Driver()
    usual = driver.canary, driver.baseline
    driver.canary, driver.baseline = canary, baseline  # type: ignore[assignment] # subsets, from the table
    assert (driver.tick().phase, driver.state.canary_parts) == (Phase.FAILED_CONFIG, 0)
    assert reason in driver.state.reason

    driver.canary, driver.baseline = usual
    assert driver.tick().phase is Phase.STARTING


def test_nothing_to_judge_by_is_a_failed_config_until_there_is_an_slo() -> None:
    driver = Driver(replace(SPEC, analysis=replace(SPEC.analysis, metrics=())))
    assert driver.tick().phase is Phase.FAILED_CONFIG
    assert "nothing to judge by" in driver.state.reason
    driver.slo = Slo(error_ratio=0.05)
    assert driver.tick().phase is Phase.STARTING


def test_an_unhealthy_canary_does_not_start() -> None:
    driver = Driver()
    driver.canary = subset(healthy=0)
    assert (driver.tick().phase, driver.state.canary_parts) == (Phase.IDLE, 0)
    assert "no healthy endpoint" in driver.state.reason
    driver.canary = subset()
    assert driver.tick().phase is Phase.STARTING


@pytest.mark.parametrize("endpoints", [0, 4])
def test_a_canary_that_dies_loses_its_weight_at_once(endpoints: int) -> None:
    driver = Driver()
    driver.until("progressing")
    driver.canary = subset(endpoints=endpoints, healthy=0)
    assert (driver.tick(seconds=1.0).phase, driver.state.canary_parts) == (Phase.ROLLING_BACK, 0)


def test_a_document_change_starts_over() -> None:
    driver = Driver(replace(SPEC, analysis=replace(SPEC.analysis, consecutive_failures=2)))
    driver.until("progressing")
    driver.canary = subset(BAD)
    driver.tick()
    driver.canary = subset()
    driver.steer(canary={"version": "v3"})

    state = driver.tick()
    assert (state.phase, state.canary_parts, state.step_index, state.total_failures) == (
        Phase.IDLE,
        0,
        0,
        0,
    )
    assert (driver.tick().phase, driver.state.canary_parts) == (Phase.STARTING, TEN_PERCENT)


def test_steering_fields_are_no_change() -> None:
    steered = replace(
        SPEC,
        desired="paused",
        retry=3,
        description="x",
        steps=tuple(replace(s, gate=True) for s in SPEC.steps),
    )
    assert hash_of(steered) == hash_of(SPEC)
    assert hash_of(replace(SPEC, canary={"version": "v3"})) != hash_of(SPEC)


def test_a_quarantined_document_stays_so_after_another_one_and_after_removal() -> None:
    driver = Driver()
    driver.until("progressing")
    driver.canary = subset(BAD)
    driver.until("rolled_back")
    driver.canary = subset()

    driver.steer(canary={"version": "v3"})
    assert driver.tick().phase is Phase.STARTING
    driver.spec = None
    assert driver.tick().phase is Phase.IDLE
    driver.spec = SPEC
    assert [driver.tick().phase for _ in range(3)] == [Phase.ROLLED_BACK] * 3
    assert "raise `retry`" in driver.state.reason
    driver.steer(retry=1)
    assert driver.tick().phase is Phase.STARTING


def test_retry_raised_under_way_is_not_spent_in_advance() -> None:
    driver = Driver()
    driver.until("progressing")
    driver.steer(retry=5)
    driver.canary = subset(BAD)
    driver.until("rolled_back")
    driver.canary = subset()
    assert driver.tick().phase is Phase.ROLLED_BACK


def test_lowering_retry_under_way_gains_nothing() -> None:
    driver = Driver()
    driver.steer(retry=3)
    driver.until("progressing")
    driver.steer(retry=0)
    driver.canary = subset(BAD)
    driver.until("rolled_back")
    driver.canary = subset()
    driver.steer(retry=3)
    assert driver.tick().phase is Phase.ROLLED_BACK
    driver.steer(retry=4)
    assert driver.tick().phase is Phase.STARTING


@pytest.mark.parametrize("phase", ["progressing", "promoted", "rolled_back"])
def test_removal_ends_everything(phase: str) -> None:
    driver = Driver()
    driver.until("progressing" if phase == "rolled_back" else phase)
    if phase == "rolled_back":
        driver.steer(desired="aborted")
        driver.until("rolled_back")
    driver.spec = None
    assert (driver.tick().phase, driver.state.canary_parts) == (Phase.IDLE, 0)
    assert driver.state.reason == "the document was removed"
    before = len(driver.events)
    driver.tick()
    assert len(driver.events) == before


def test_no_document_is_no_state() -> None:
    driver = Driver(None)
    assert driver.tick() == type(driver.state)()
    assert driver.events == []


def test_a_breach_never_sends_traffic_to_a_dead_baseline() -> None:
    driver = Driver()
    driver.until("promoting")
    driver.canary, driver.baseline = subset(BAD), subset(healthy=0)

    state = driver.tick()
    assert (state.phase, state.canary_parts) == (Phase.ROLLING_BACK, TOTAL_PARTS)
    assert "the baseline has no healthy endpoint (of 4)" in state.reason
    assert driver.tick().reason == state.reason

    driver.baseline = subset(healthy=1)
    assert driver.tick().canary_parts == 0
    assert driver.tick().phase is Phase.ROLLED_BACK


def test_people_may_abort_onto_a_dead_baseline_and_are_told() -> None:
    driver = Driver()
    driver.until("promoted")
    driver.baseline = subset(endpoints=0, healthy=0)
    driver.steer(desired="aborted")
    assert driver.tick().canary_parts == 0
    assert "the baseline has no healthy endpoint (of 0)" in driver.state.reason


def test_promoted_keeps_everything() -> None:
    driver = Driver()
    driver.until("promoted")
    driver.canary = subset(BAD, healthy=1)
    assert [driver.tick().canary_parts for _ in range(10)] == [TOTAL_PARTS] * 10
    driver.canary, driver.baseline = subset(healthy=0), subset(healthy=0)
    assert driver.tick().canary_parts == TOTAL_PARTS
    driver.baseline = subset()
    assert (driver.tick().phase, driver.state.canary_parts) == (Phase.ROLLING_BACK, 0)


def test_rolling_back_waits_for_the_nodes() -> None:
    driver = Driver()
    driver.until("progressing")
    driver.acked_ratio = 0.4
    driver.steer(desired="aborted")
    assert [driver.tick().phase for _ in range(5)] == [Phase.ROLLING_BACK] * 5
    driver.acked_ratio = 1.0
    assert driver.tick().phase is Phase.ROLLED_BACK
