"""Rolling back, and the quarantine after it."""

from __future__ import annotations

from dataclasses import replace

from controlplane.core.rollout.tick import Tick, enter
from controlplane.model.rollout import CanaryState, Phase

_MAX_QUARANTINED = 64


def roll_back(state: CanaryState, tick: Tick, why: str) -> CanaryState:
    """End a rollout now: no weight, and the document is quarantined.

    Only a `retry` above any it had so far runs it again; lowering `retry` under way gains nothing.
    """
    retry = max(tick.spec.retry, state.retry)
    quarantined = {name: at for name, at in state.quarantined.items() if name != state.spec_hash}
    newest = dict([*quarantined.items(), (state.spec_hash, retry)][-_MAX_QUARANTINED:])
    rolling = enter(state, Phase.ROLLING_BACK, why, tick.now)
    return _without_weight(replace(rolling, retry=retry, quarantined=newest), tick)


def finish_rollback(state: CanaryState, tick: Tick) -> CanaryState:
    """Wait until nearly all nodes have the zero."""
    if state.canary_parts:
        return _without_weight(state, tick)
    if tick.is_acked(0):
        return enter(state, Phase.ROLLED_BACK, state.reason, tick.now)
    return state


def is_quarantined(state: CanaryState, tick: Tick) -> bool:
    """Tell whether this document was rolled back and its `retry` not raised since."""
    return state.quarantined.get(tick.spec_hash, -1) >= tick.spec.retry


def _without_weight(state: CanaryState, tick: Tick) -> CanaryState:
    """Take the canary's traffic away, unless nobody but the canary could serve it.

    Only people (`desired: aborted`) send traffic to a baseline without a healthy endpoint.
    """
    baseline, canary = tick.observation.baseline, tick.observation.canary
    if baseline.healthy:
        return replace(state, canary_parts=0)
    warning = f"the baseline has no healthy endpoint (of {baseline.endpoints})"
    reason = state.reason if warning in state.reason else f"{state.reason}; {warning}"
    if canary.healthy and tick.spec.desired != "aborted":
        return replace(state, reason=reason)
    return replace(state, canary_parts=0, reason=reason)
