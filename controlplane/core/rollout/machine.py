"""From phase to phase: documents come, change and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from controlplane.core.rollout.events import Event, events_between
from controlplane.core.rollout.rollback import finish_rollback, is_quarantined, roll_back
from controlplane.core.rollout.running import run
from controlplane.core.rollout.tick import ACKED_RATIO, Tick, enter, parts_of
from controlplane.core.slo import checks
from controlplane.model.rollout import CanarySpec, CanaryState, Observation, Phase
from controlplane.model.strategy import Slo


def step(
    state: CanaryState,
    *,
    spec: CanarySpec | None,
    spec_hash: str,
    slo: Slo,
    observation: Observation,
    now: float,
) -> tuple[CanaryState, tuple[Event, ...]]:
    """Advance a rollout by one tick.

    `spec` is the document in force (`None`: removed), `spec_hash` its `hash_of`, `now` decision time in
    seconds. Without a document the canary gets nothing: its endpoints then belong to the stable
    cluster, so after a promotion nothing changes hands but the Maglev tables.
    """
    if spec is None:
        after = _removed(state, now)
    else:
        tick = Tick(spec=spec, spec_hash=spec_hash, slo=slo, observation=observation, now=now)
        after = _next(state, tick)
    return after, events_between(state, after)


def _removed(state: CanaryState, now: float) -> CanaryState:
    if not state.spec_hash:
        return state
    return CanaryState(entered_at=now, reason="the document was removed", quarantined=state.quarantined)


def _next(state: CanaryState, tick: Tick) -> CanaryState:
    if tick.spec_hash != state.spec_hash:
        adopted = _adopt(state, tick)
        if state.canary_parts or adopted.phase is Phase.ROLLED_BACK:
            return adopted  # one tick without a canary between two documents
        state = adopted
    if tick.spec.desired == "aborted":
        return _abort(state, tick)
    return _BY_PHASE[state.phase](state, tick)


def _adopt(state: CanaryState, tick: Tick) -> CanaryState:
    """Start over with another document: no weight, no counters, but the quarantine stays."""
    fresh = CanaryState(
        spec_hash=tick.spec_hash,
        retry=tick.spec.retry,
        entered_at=tick.now,
        reason="a new document" if not state.spec_hash else "the document changed: starting over",
        quarantined=state.quarantined,
    )
    if not is_quarantined(fresh, tick):
        return fresh
    return replace(
        fresh, phase=Phase.ROLLED_BACK, reason="rolled back before: raise `retry` to run it again"
    )


def _abort(state: CanaryState, tick: Tick) -> CanaryState:
    if state.phase in {Phase.IDLE, Phase.FAILED_CONFIG}:
        return enter(state, Phase.IDLE, "abort: nothing is running", tick.now)
    if state.phase is Phase.ROLLED_BACK:
        return state
    if state.phase is Phase.ROLLING_BACK:
        return finish_rollback(state, tick)
    return roll_back(state, tick, "aborted by the document")


def _try_start(state: CanaryState, tick: Tick) -> CanaryState:
    problem = _config_problem(tick)
    if problem:
        return enter(state, Phase.FAILED_CONFIG, problem, tick.now)
    if tick.spec.desired == "paused":
        return enter(state, Phase.IDLE, "paused by the document before the start", tick.now)
    if not tick.observation.canary.healthy:
        return enter(state, Phase.IDLE, "waiting: the canary has no healthy endpoint", tick.now)
    parts = parts_of(tick.spec.steps[0].weight_percent)
    reason = f"waiting for {ACKED_RATIO:.0%} of the nodes and a first verdict"
    begun = enter(state, Phase.STARTING, reason, tick.now)
    return replace(begun, retry=tick.spec.retry, canary_parts=parts, judged_at=tick.now)


def _config_problem(tick: Tick) -> str:
    if not tick.observation.canary.endpoints:
        return f"no endpoint matches `canary` {_selector(tick.spec.canary)}"
    if not tick.observation.baseline.endpoints:
        return f"no endpoint is left for `baseline` {_selector(tick.spec.baseline)}"
    if not checks(tick.spec.analysis, tick.slo):
        return "nothing to judge by: give `analysis.metrics`, or the strategy an `slo`"
    return ""


def _selector(selector: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in sorted(selector.items())) + "}"


def _keep_promoted(state: CanaryState, tick: Tick) -> CanaryState:
    if tick.observation.canary.healthy:
        return replace(state, reason="all traffic goes to the canary")
    if tick.observation.baseline.healthy:
        return roll_back(state, tick, "no healthy endpoint is left in the promoted canary")
    return replace(state, reason="no healthy endpoint is left, in the canary or the baseline")


def _stay_rolled_back(state: CanaryState, tick: Tick) -> CanaryState:
    if is_quarantined(state, tick):
        return state
    retried = replace(_adopt(CanaryState(quarantined=state.quarantined), tick), reason="`retry` was raised")
    return _try_start(retried, tick)


_BY_PHASE: Mapping[Phase, Callable[[CanaryState, Tick], CanaryState]] = {
    Phase.IDLE: _try_start,
    Phase.FAILED_CONFIG: _try_start,
    Phase.STARTING: run,
    Phase.PROGRESSING: run,
    Phase.PAUSED: run,
    Phase.PROMOTING: run,
    Phase.PROMOTED: _keep_promoted,
    Phase.ROLLING_BACK: finish_rollback,
    Phase.ROLLED_BACK: _stay_rolled_back,
}
