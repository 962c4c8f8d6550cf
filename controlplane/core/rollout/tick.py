"""What one step sees, and the small change of state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane.model.rollout import TOTAL_PARTS, CanarySpec, CanaryState, Observation, Phase
from controlplane.model.strategy import Slo

ACKED_RATIO = 0.9
"""Share of connected nodes that must have a weight before it is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What one step sees."""

    spec: CanarySpec
    spec_hash: str
    slo: Slo
    observation: Observation
    now: float

    def is_acked(self, parts: int) -> bool:
        """Tell whether nearly all nodes route by these parts."""
        return self.observation.acked_parts == parts and self.observation.acked_ratio >= ACKED_RATIO


def parts_of(percent: float) -> int:
    """Convert percent of traffic to parts of `TOTAL_PARTS`; at least one part."""
    return max(1, round(percent / 100 * TOTAL_PARTS))


def enter(state: CanaryState, phase: Phase, reason: str, now: float) -> CanaryState:
    """Be in a phase; its clock starts only if it is another one."""
    entered_at = state.entered_at if phase is state.phase else now
    return replace(state, phase=phase, reason=reason, entered_at=entered_at)
