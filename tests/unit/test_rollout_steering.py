"""What people and circumstances do to a canary: abort, gates, changes, removal, lost endpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.core.rollout import hash_of
from controlplane.model.rollout import TOTAL_PARTS, Phase
from controlplane.model.strategy import Slo
from tests.support.rollout_driver import BAD, NO_DATA, SPEC, Driver, subset

TEN_PERCENT, HALF = 10_000, 50_002


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
