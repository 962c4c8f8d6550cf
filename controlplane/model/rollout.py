"""Canaries: the document people write, the state Trimtab keeps, what it observes and decides."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Gt, Interval, Len

from controlplane.model.checks import check_text
from controlplane.model.strategy import DOCUMENT_CONFIG, Seconds

TOTAL_PARTS = 100_003
"""Constant total of `weighted_clusters`. Envoy picks the cluster by ``hash % total``, the priority by
``hash % 100`` and the Maglev slot by ``hash % table_size``: a prime keeps the three independent."""

Selector: TypeAlias = Annotated[Mapping[str, str], Len(1, 16)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryStep:
    """One stage of a rollout."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    weight_percent: Annotated[float, Gt(0), Interval(le=100)]
    hold_seconds: Annotated[float, Interval(ge=0, le=604_800)] = 60.0
    """Time at this weight, with passing verdicts, before the next step."""
    gate: bool = False
    """Wait for `desired: promoted` (or a document without this gate) instead of going on alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCheck:
    """A limit on one observed figure. A breach needs *every* threshold given here to be exceeded."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    signal: Annotated[str, Len(1, 64)]
    """`error_ratio`, or a signal of the strategy such as `ttft_p90_seconds`."""
    max_value: Annotated[float, Interval(ge=0)] | None = None
    """Absolute limit, in the signal's unit."""
    max_ratio_to_baseline: Annotated[float, Gt(0)] | None = None
    """Limit relative to the baseline's figure."""

    def __post_init__(self) -> None:
        """Check that there is a threshold.

        Raises:
            ValueError: if neither is given.
        """
        if self.max_value is None and self.max_ratio_to_baseline is None:
            msg = "give `max_value` or `max_ratio_to_baseline`"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """When a canary counts as good, bad, or unknown."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    metrics: Annotated[tuple[MetricCheck, ...], Len(0, 32)] = ()
    """Empty: the strategy's `slo` limits."""
    interval_seconds: Seconds = 10.0
    """Time between two verdicts."""
    consecutive_failures: Annotated[int, Interval(ge=1, le=1000)] = 2
    total_failures: Annotated[int, Interval(ge=1, le=1000)] = 4
    no_data_deadline_seconds: Seconds = 300.0
    """Hold this long without data, then roll back."""
    min_requests: Annotated[int, Interval(ge=0, le=1_000_000)] = 20
    """Canary requests in the window before a verdict counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderMatch:
    """Requests with this exact header always go to the canary."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    header: Annotated[str, Len(1, 256)]
    value: Annotated[str, Len(0, 1024)]

    def __post_init__(self) -> None:
        """Check name and value.

        Raises:
            ValueError: if one has control characters.
        """
        check_text(header=self.header, value=self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySpec:
    """A canary document: two subsets of one service, steps, and how to judge."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    schema: Literal[1]
    """Document format."""
    canary: Selector
    """Endpoint attributes that select the canary, such as `{"version": "v2"}`."""
    baseline: Mapping[str, str] = field(default_factory=dict)
    """Attributes that select the baseline. Empty: everything that is not canary."""
    steps: Annotated[tuple[CanaryStep, ...], Len(1, 64)] = (
        CanaryStep(weight_percent=10),
        CanaryStep(weight_percent=50),
    )
    """Weights never fall from step to step; promotion to 100 % follows the last."""
    analysis: Analysis = field(default_factory=Analysis)
    match: Annotated[tuple[HeaderMatch, ...], Len(0, 32)] = ()
    """Any of these sends a request to the canary, whatever its weight, while the canary runs."""
    desired: Literal["run", "paused", "promoted", "aborted"] = "run"
    """What people want. `promoted` skips the remaining steps, never the health of the canary."""
    retry: Annotated[int, Interval(ge=0)] = 0
    """Raise it to run a rolled back document once more."""
    description: Annotated[str, Len(0, 4096)] = ""

    def __post_init__(self) -> None:
        """Check that steps rise.

        Raises:
            ValueError: if a step has less weight than the one before it.
        """
        weights = [step.weight_percent for step in self.steps]
        if weights != sorted(weights):
            msg = f"step weights fall: {weights}"
            raise ValueError(msg)


class Phase(enum.StrEnum):
    """Where a rollout stands."""

    IDLE = "idle"
    STARTING = "starting"
    PROGRESSING = "progressing"
    PAUSED = "paused"
    PROMOTING = "promoting"
    PROMOTED = "promoted"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    FAILED_CONFIG = "failed_config"


class Verdict(enum.StrEnum):
    """One judgement. Precedence: fail, error, no_data, pass."""

    PASS = "pass"
    NO_DATA = "no_data"
    ERROR = "error"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetObservation:
    """What one subset looked like in this tick. `figures` leaves out what is unknown."""

    endpoints: int
    healthy: int
    window_requests: float
    """Requests in the signal window; NaN if unknown."""
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything the state machine may know about the outside world."""

    canary: SubsetObservation
    baseline: SubsetObservation
    acked_ratio: float
    """Share of connected nodes that acknowledged the routes last published; 1 without nodes."""
    acked_parts: int | None = None
    """Canary parts in those routes; `None` before the first publication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryState:
    """Memory of one rollout: everything `core.rollout.step` needs next time."""

    phase: Phase = Phase.IDLE
    spec_hash: str = ""
    retry: int = 0
    step_index: int = 0
    canary_parts: int = 0
    """Share of traffic as parts of `TOTAL_PARTS`."""
    entered_at: float = 0.0
    """Decision time at which the phase (or step) began."""
    judged_at: float = 0.0
    no_data_since: float | None = None
    passing_since: float | None = None
    """Decision time of the first of the unbroken passing verdicts at this weight."""
    consecutive_failures: int = 0
    total_failures: int = 0
    last_verdict: Verdict | None = None
    reason: str = ""
    """Why the phase is what it is, for people."""
    quarantined: Mapping[str, int] = field(default_factory=dict)
    """Hashes that were rolled back → the `retry` they had: they run again only with a higher one."""
