"""A canary with weight: judge it, hold it, move it up, promote it."""

from __future__ import annotations

from dataclasses import replace

from controlplane.core.rollout.rollback import roll_back
from controlplane.core.rollout.tick import Tick, enter, parts_of
from controlplane.core.slo import judge
from controlplane.model.rollout import TOTAL_PARTS, CanaryState, CanaryStep, Phase, Verdict


def run(state: CanaryState, tick: Tick) -> CanaryState:
    """Advance a canary that has weight, in any of its phases."""
    canary = tick.observation.canary
    if not canary.healthy:
        return roll_back(state, tick, f"none of the canary's {canary.endpoints} endpoints is healthy")
    state, fresh = _judged(state, tick)
    breach = _breach(state, tick, fresh)
    if breach:
        return roll_back(state, tick, breach)
    if state.phase is Phase.PROMOTING:
        if fresh is Verdict.PASS:
            return enter(state, Phase.PROMOTED, "all traffic goes to the canary", tick.now)
        return state
    return _move(state, tick, fresh)


def _judged(state: CanaryState, tick: Tick) -> tuple[CanaryState, Verdict | None]:
    """Judge if a verdict is due; returns it with the counters that follow from it."""
    if tick.now - state.judged_at < tick.spec.analysis.interval_seconds:
        return state, None
    has_all = state.phase is Phase.PROMOTING
    judgement = judge(tick.spec.analysis, tick.slo, tick.observation, is_baseline_idle=has_all)
    verdict, reason = judgement.verdict, judgement.reason
    if verdict is Verdict.PASS and not tick.is_acked(state.canary_parts):
        verdict = Verdict.NO_DATA
        reason = f"{tick.observation.acked_ratio:.0%} of the nodes acknowledged the routes last published"
    judged = replace(state, judged_at=tick.now, last_verdict=verdict, reason=reason)
    if verdict is Verdict.FAIL:
        failures = (state.consecutive_failures + 1, state.total_failures + 1)
        judged = replace(judged, passing_since=None, no_data_since=None)
        return replace(judged, consecutive_failures=failures[0], total_failures=failures[1]), verdict
    if verdict is Verdict.PASS:
        since = tick.now if state.passing_since is None else state.passing_since
        return replace(judged, passing_since=since, no_data_since=None, consecutive_failures=0), verdict
    since = tick.now if state.no_data_since is None else state.no_data_since
    return replace(judged, passing_since=None, no_data_since=since), verdict


def _breach(state: CanaryState, tick: Tick, fresh: Verdict | None) -> str:
    """Say why the rollout must end now; empty if it need not."""
    analysis = tick.spec.analysis
    if fresh is Verdict.FAIL:
        if state.consecutive_failures >= analysis.consecutive_failures:
            return f"{state.consecutive_failures} failed verdicts in a row: {state.reason}"
        if state.total_failures >= analysis.total_failures:
            return f"{state.total_failures} failed verdicts in all: {state.reason}"
    if fresh in {Verdict.NO_DATA, Verdict.ERROR} and state.no_data_since is not None:
        silent = tick.now - state.no_data_since
        if silent >= analysis.no_data_deadline_seconds:
            return f"no verdict for {silent:.0f} s: {state.reason}"
    return ""


def _move(state: CanaryState, tick: Tick, fresh: Verdict | None) -> CanaryState:
    """Go on, hold or pause, with the newest verdict at hand."""
    if tick.spec.desired == "paused":
        return enter(state, Phase.PAUSED, "paused by the document", tick.now)
    if state.passing_since is None:
        is_silent = state.last_verdict in {Verdict.NO_DATA, Verdict.ERROR}
        phase = Phase.PAUSED if is_silent else Phase.PROGRESSING
        return enter(state, state.phase if state.phase is Phase.STARTING else phase, state.reason, tick.now)
    return _go_on(state, tick, is_fresh=fresh is Verdict.PASS, passed_for=tick.now - state.passing_since)


def _go_on(state: CanaryState, tick: Tick, *, is_fresh: bool, passed_for: float) -> CanaryState:
    """Take the next step if the hold is over and this tick's verdict passes."""
    current = _current_step(state, tick)
    is_wanted_now = tick.spec.desired == "promoted"
    if not is_wanted_now and passed_for < current.hold_seconds:
        reason = f"holding {current.weight_percent:g} %: passing for {passed_for:.0f} s"
        return enter(state, Phase.PROGRESSING, f"{reason} of {current.hold_seconds:g} s", tick.now)
    if not is_wanted_now and current.gate:
        return enter(state, Phase.PAUSED, "gate: waiting for `desired: promoted`", tick.now)
    if not is_fresh:
        return enter(state, Phase.PROGRESSING, "waiting for the next verdict", tick.now)
    if is_wanted_now or state.step_index + 1 >= len(tick.spec.steps):
        return _promote(state, tick)
    following = replace(state, step_index=state.step_index + 1)
    percent = _current_step(following, tick).weight_percent
    return replace(
        _at_new_weight(following, parts_of(percent), tick.now),
        phase=Phase.PROGRESSING,
        reason=f"step {following.step_index + 1} of {len(tick.spec.steps)}: {percent:g} %",
    )


def _promote(state: CanaryState, tick: Tick) -> CanaryState:
    canary = tick.observation.canary
    if 2 * canary.healthy <= canary.endpoints:
        # All traffic on half of the endpoints, or fewer, is where Envoy itself would begin to panic.
        reason = f"not promoted: {canary.healthy} of {canary.endpoints} canary endpoints are healthy"
        return enter(state, Phase.PROGRESSING, reason, tick.now)
    promoting = _at_new_weight(state, TOTAL_PARTS, tick.now)
    return replace(
        promoting, phase=Phase.PROMOTING, reason="all traffic to the canary: waiting for the nodes"
    )


def _current_step(state: CanaryState, tick: Tick) -> CanaryStep:
    return tick.spec.steps[state.step_index]


def _at_new_weight(state: CanaryState, parts: int, now: float) -> CanaryState:
    """Set a weight; verdicts at the old one prove nothing about it."""
    return replace(
        state,
        canary_parts=parts,
        entered_at=now,
        judged_at=now,
        passing_since=None,
        no_data_since=None,
        last_verdict=None,
    )
