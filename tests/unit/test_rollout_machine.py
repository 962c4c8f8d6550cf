"""Whatever happens, in any order: what a rollout never does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controlplane.core.rollout import hash_of
from controlplane.core.slo import judge
from controlplane.model.rollout import (
    TOTAL_PARTS,
    CanarySpec,
    CanaryState,
    CanaryStep,
    Observation,
    Phase,
    Verdict,
)
from tests.support.rollout_driver import BAD, GOOD, SPEC, Driver, subset

RUNNING = {Phase.STARTING, Phase.PROGRESSING, Phase.PAUSED, Phase.PROMOTING}

DOCUMENTS = (
    SPEC,
    replace(SPEC, canary={"version": "v3"}, analysis=replace(SPEC.analysis, consecutive_failures=2)),
    replace(
        SPEC,
        canary={"version": "v4"},
        steps=(
            CanaryStep(weight_percent=1, hold_seconds=0, gate=True),
            CanaryStep(weight_percent=100, hold_seconds=15),
        ),
    ),
)


class Rollout(RuleBasedStateMachine):
    """People, health, data and nodes change at random between ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.highest_rollback: dict[str, int] = {}

    @rule(document=st.sampled_from(DOCUMENTS))
    def put_a_document(self, document: CanarySpec) -> None:
        self.driver.spec = document
        self.tick_on(3)

    @rule()
    def remove_the_document(self) -> None:
        self.driver.spec = None
        self.tick(5.0)

    @rule(desired=st.sampled_from(["run", "run", "run", "paused", "promoted", "aborted"]))
    def steer(self, desired: str) -> None:
        if self.driver.spec:
            self.driver.steer(desired=desired)
            self.tick(7.0)

    @rule()
    def raise_retry(self) -> None:
        if self.driver.spec:
            self.driver.steer(retry=self.driver.spec.retry + 1, desired="run")
            self.tick(10.0)

    @rule(figures=st.sampled_from([GOOD, BAD, {}]), requests=st.sampled_from([100.0, 100.0, 3.0]))
    def change_the_canary(self, figures: dict[str, float], requests: float) -> None:
        self.driver.canary = subset(figures, requests=requests)
        self.tick(7.0)

    @rule(healthy=st.sampled_from([3, 2, 0]))
    def hurt_the_canary(self, healthy: int) -> None:
        self.driver.canary = replace(self.driver.canary, healthy=healthy)
        self.tick(7.0)

    @rule(endpoints=st.sampled_from([4, 0]))
    def hurt_the_baseline(self, endpoints: int) -> None:
        self.driver.baseline = subset(endpoints=endpoints, healthy=0)
        self.tick(7.0)

    @rule(acked_ratio=st.sampled_from([0.0, 0.89]), is_acking=st.booleans())
    def disturb_the_nodes(self, acked_ratio: float, is_acking: bool) -> None:  # noqa: FBT001 - drawn by name
        self.driver.acked_ratio, self.driver.is_acking = acked_ratio, is_acking
        self.tick(7.0)

    @rule()
    def recover(self) -> None:
        self.driver.canary, self.driver.baseline = subset(), subset()
        self.driver.acked_ratio, self.driver.is_acking = 1.0, True
        self.tick_on(3)

    @rule(seconds=st.sampled_from([0.0, 1.0, 25.0, 70.0]))
    def tick(self, seconds: float) -> None:
        before = self.driver.state
        after = self.driver.tick(seconds=seconds)
        self.check_rise(before, after)
        self.check_breach(before, after)
        self.check_abort(after)
        self.check_quarantine(after)

    @rule(ticks=st.integers(2, 8), seconds=st.sampled_from([7.0, 10.0]))
    def tick_on(self, ticks: int, seconds: float = 10.0) -> None:
        for _ in range(ticks):
            self.tick(seconds)

    def verdict(self) -> Verdict:
        assert self.driver.spec is not None
        observation = Observation(
            canary=self.driver.canary, baseline=self.driver.baseline, acked_ratio=1.0, acked_parts=0
        )
        return judge(self.driver.spec.analysis, self.driver.slo, observation).verdict

    def check_rise(self, before: CanaryState, after: CanaryState) -> None:
        if after.canary_parts <= before.canary_parts:
            return
        spec = self.driver.spec
        assert spec is not None
        assert self.driver.canary.healthy > 0
        if after.phase is Phase.STARTING:
            assert before.canary_parts == 0
            return
        # Any other rise: a passing verdict in this very tick, after the hold or on people's word.
        assert self.verdict() is Verdict.PASS
        assert self.driver.now - before.judged_at >= spec.analysis.interval_seconds
        assert self.driver.acked_ratio >= 0.9
        assert spec.desired in {"run", "promoted"}
        current = spec.steps[before.step_index]
        if spec.desired == "run":
            assert not current.gate
            assert current.hold_seconds == 0 or before.passing_since is not None
            started = self.driver.now if before.passing_since is None else before.passing_since
            assert self.driver.now - started >= current.hold_seconds
        if after.canary_parts == TOTAL_PARTS and after.phase is Phase.PROMOTING:
            assert 2 * self.driver.canary.healthy > self.driver.canary.endpoints

    def check_breach(self, before: CanaryState, after: CanaryState) -> None:
        spec = self.driver.spec
        if spec is None or before.phase not in RUNNING or hash_of(spec) != before.spec_hash:
            return
        is_due = self.driver.now - before.judged_at >= spec.analysis.interval_seconds
        is_breach = (
            is_due
            and self.verdict() is Verdict.FAIL
            and before.consecutive_failures + 1 >= spec.analysis.consecutive_failures
        )
        if is_breach or not self.driver.canary.healthy:
            assert after.phase is Phase.ROLLING_BACK
            if self.driver.baseline.healthy or not self.driver.canary.healthy:
                assert after.canary_parts == 0
            else:
                assert "the baseline has no healthy endpoint" in after.reason

    def check_abort(self, after: CanaryState) -> None:
        if self.driver.spec and self.driver.spec.desired == "aborted":
            assert after.canary_parts == 0
            assert after.phase not in RUNNING | {Phase.PROMOTED}

    def check_quarantine(self, after: CanaryState) -> None:
        spec = self.driver.spec
        if spec is None:
            assert (after.phase, after.canary_parts) == (Phase.IDLE, 0)
            return
        identity = hash_of(spec)
        if after.phase in RUNNING:
            # The `retry` it was started with counts: lowering it under way changes nothing.
            assert max(spec.retry, after.retry) > self.highest_rollback.get(identity, -1)
        if after.phase is Phase.ROLLING_BACK and after.spec_hash == identity:
            self.highest_rollback[identity] = max(after.retry, self.highest_rollback.get(identity, -1))

    @invariant()
    def parts_are_parts(self) -> None:
        assert 0 <= self.driver.state.canary_parts <= TOTAL_PARTS

    @invariant()
    def weightless_phases_have_no_weight(self) -> None:
        state = self.driver.state
        if state.phase in {Phase.IDLE, Phase.FAILED_CONFIG, Phase.ROLLED_BACK}:
            assert state.canary_parts == 0
        if state.phase in {Phase.PROMOTING, Phase.PROMOTED}:
            assert state.canary_parts == TOTAL_PARTS
        assert state.phase is Phase.IDLE or state.reason


TestRollout = Rollout.TestCase
TestRollout.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
