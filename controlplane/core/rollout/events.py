"""What a step changed, as events."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model.rollout import CanaryState, Phase

_RUNNING = frozenset({Phase.STARTING, Phase.PROGRESSING, Phase.PAUSED, Phase.PROMOTING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth telling people. `kind` is a phase's name, or ``step``, ``verdict``, ``note``."""

    kind: str
    phase: Phase
    canary_parts: int
    reason: str


def events_between(before: CanaryState, after: CanaryState) -> tuple[Event, ...]:
    """Tell what changed; a tick that only counts seconds tells nothing."""
    kinds = []
    if after.last_verdict is not before.last_verdict and after.last_verdict is not None:
        kinds.append("verdict")
    if after.phase is not before.phase:
        kinds.append(after.phase.value)
    elif after.phase in _RUNNING and after.step_index != before.step_index:
        kinds.append("step")
    elif after.phase not in _RUNNING and after.reason != before.reason:
        kinds.append("note")
    return tuple(
        Event(kind=kind, phase=after.phase, canary_parts=after.canary_parts, reason=after.reason)
        for kind in kinds
    )
