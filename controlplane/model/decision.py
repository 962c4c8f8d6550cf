"""A decision: weights, and everything needed to explain and repeat them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.model.signals import Floats, SignalTable
from controlplane.model.strategy import Strategy
from controlplane.model.topology import EndpointId, ServiceName, ServiceTopology
from controlplane.model.weights import WeightVector


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One step of the computation: the law, or a guard.

    `values` are shares (or the law's raw figures) after the step, shape (endpoints,), read-only.
    `reasons` says, for each endpoint the step changed for a particular reason, why. `notes` concern
    the whole service. `terms` are named intermediate columns (the law's arithmetic), each of shape
    (endpoints,).
    """

    name: str
    values: Floats
    reasons: Mapping[EndpointId, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    terms: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMemory:
    """What one decision leaves for the next. Plain JSON types only, so that it survives in a checkpoint.

    Times are decision time: seconds on a monotonic axis that a checkpoint continues.
    """

    published: WeightVector | None = None
    """Weights last handed to Envoy."""
    published_at: float | None = None
    smoothed: Mapping[EndpointId, float] = field(default_factory=dict)
    """Shares after smoothing and limits, before the publishing decision."""
    first_seen: Mapping[EndpointId, float] = field(default_factory=dict)
    decided_at: float | None = None
    moved_at: float | None = None
    """Last time a decision changed the shares that the next one starts from. The step limit's allowance
    grows from here, so that decisions which move nothing (no new sample yet) use none of it up.
    """
    fresh_at: float | None = None
    """Last time at least half of the endpoints had fresh signals."""
    penalty_until: Mapping[EndpointId, float] = field(default_factory=dict)
    """Endpoints under emergency, and until when."""
    sample_times: Mapping[EndpointId, float] = field(default_factory=dict)
    """Decision time of the newest sample already smoothed: the same sample never counts twice."""
    fade_from: Mapping[EndpointId, float] = field(default_factory=dict)
    """Shares at the moment signals were lost."""
    strategy_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceInputs:
    """Everything `core.decide.decide` reads besides memory and time."""

    strategy: Strategy
    strategy_hash: str
    topology: ServiceTopology
    table: SignalTable
    freeze: str = ""
    """``hold``, ``equal`` or empty."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """The result of one tick for one service."""

    service: ServiceName
    decided_at: float
    inputs: ServiceInputs
    weights: WeightVector
    """What Envoy should have now: new if `is_published`, otherwise the previous vector."""
    proposed: WeightVector
    """What the pipeline arrived at, published or not."""
    is_published: bool
    publish_reason: str
    """``first``, ``membership``, ``strategy``, ``emergency``, ``weights``, ``freeze``; or why not:
    ``hysteresis``, ``interval``, ``hold``.
    """
    stages: tuple[Stage, ...]
    states: Mapping[EndpointId, str]
    """One word for people: ``ok``, ``warming``, ``no data``, ``stale``, ``emergency``, ``draining``,
    ``unhealthy``, ``held``, ``fading``.
    """
    warnings: tuple[str, ...]
    memory: ServiceMemory
    previous: WeightVector | None = None
    """What Envoy had before this decision, for people to compare with."""
