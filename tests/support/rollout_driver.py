"""Drives the canary state machine tick by tick, with Envoys that acknowledge what they are given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from controlplane.core.rollout import Event, hash_of, step
from controlplane.model.rollout import (
    Analysis,
    CanarySpec,
    CanaryState,
    CanaryStep,
    MetricCheck,
    Observation,
    SubsetObservation,
)
from controlplane.model.strategy import Slo

GOOD: Mapping[str, float] = {"error_ratio": 0.001}
BAD: Mapping[str, float] = {"error_ratio": 0.5}

SPEC = CanarySpec(
    schema=1,
    canary={"version": "v2"},
    steps=(
        CanaryStep(weight_percent=10, hold_seconds=20),
        CanaryStep(weight_percent=50, hold_seconds=20),
    ),
    analysis=Analysis(
        metrics=(MetricCheck(signal="error_ratio", max_value=0.05),),
        interval_seconds=10,
        consecutive_failures=1,
        no_data_deadline_seconds=60,
    ),
)


def subset(
    figures: Mapping[str, float] = GOOD, *, endpoints: int = 4, healthy: int = 4, requests: float = 100
) -> SubsetObservation:
    """Describe a subset, healthy and busy unless told otherwise."""
    return SubsetObservation(
        endpoints=endpoints, healthy=healthy, window_requests=requests, figures=dict(figures)
    )


NO_DATA = subset({}, requests=math.nan)


class Driver:
    """One rollout with its document, its world and its clock (10 s a tick)."""

    def __init__(self, spec: CanarySpec | None = SPEC) -> None:
        self.spec = spec
        self.slo = Slo()
        self.state = CanaryState()
        self.canary = subset()
        self.baseline = subset()
        self.acked_ratio = 1.0
        self.is_acking = True
        self.now = 1000.0
        self.events: list[Event] = []
        self._acked_parts: int | None = None

    def steer(self, **changes: object) -> None:
        """Edit fields of the document."""
        assert self.spec is not None
        self.spec = replace(self.spec, **changes)  # type: ignore[arg-type] # fields of the document

    def tick(self, *, seconds: float = 10.0) -> CanaryState:
        """Let time pass and step once; the nodes acknowledge the result before the next tick."""
        self.now += seconds
        self.state, events = step(
            self.state,
            spec=self.spec,
            spec_hash=hash_of(self.spec) if self.spec else "",
            slo=self.slo,
            observation=Observation(
                canary=self.canary,
                baseline=self.baseline,
                acked_ratio=self.acked_ratio,
                acked_parts=self._acked_parts,
            ),
            now=self.now,
        )
        self.events += events
        if self.is_acking:
            self._acked_parts = self.state.canary_parts
        return self.state

    def until(self, phase: str, *, ticks: int = 60) -> CanaryState:
        """Tick until a phase is reached."""
        for _ in range(ticks):
            if self.state.phase == phase:
                return self.state
            self.tick()
        raise AssertionError(f"still {self.state.phase} ({self.state.reason}), never {phase}")

    @property
    def kinds(self) -> list[str]:
        """Kinds of all events so far."""
        return [event.kind for event in self.events]
