"""What the running control plane knows, as one immutable view for admin API, metrics and status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from controlplane.model.decision import Decision
from controlplane.model.documents import AcceptedDocument
from controlplane.model.fleet import FleetStatus
from controlplane.model.health import SourceHealth
from controlplane.model.problems import Rejected
from controlplane.model.rollout import CanarySpec, CanaryState, SubsetObservation
from controlplane.model.signals import Readings
from controlplane.model.strategy import Strategy
from controlplane.model.topology import ServiceTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedDocument:
    """The newest document that was refused, with why."""

    key: str
    revision: int
    rejected: Rejected
    at_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanaryView:
    """One service's canary."""

    spec: CanarySpec
    spec_hash: str
    state: CanaryState
    canary: SubsetObservation | None = None
    baseline: SubsetObservation | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceView:
    """One service."""

    service: str
    strategy: Strategy
    strategy_hash: str
    strategy_revision: int
    topology: ServiceTopology
    decision: Decision | None
    readings: Readings | None = None
    rejected: RejectedDocument | None = None
    rejected_canary: RejectedDocument | None = None
    canary: CanaryView | None = None
    freeze: str = ""
    flags: tuple[str, ...] = ()
    """Standing conditions, such as ``strategy_deleted`` or ``topology_held``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateView:
    """Everything at one moment. Times ending in `_seconds` are on the monotonic clock of `at_seconds`."""

    at_seconds: float
    is_ready: bool
    not_ready_reason: str
    started_from_checkpoint: bool
    services: tuple[ServiceView, ...]
    """Sorted by name."""
    orphans: Mapping[str, RejectedDocument] = field(default_factory=dict)
    """Refused documents of services that have no accepted strategy yet."""
    sources: tuple[SourceHealth, ...]
    fleet: FleetStatus
    versions: Mapping[str, str]
    """Type URL → version of what is being served."""
    last_tick_seconds: float | None
    store_degraded: str = ""
    """Why the state directory refuses writes; empty when it does not."""


class StateReader(Protocol):
    """What the admin API needs of the runtime."""

    def view(self) -> StateView:
        """Give the current state."""
        ...

    def history(self, service: str) -> tuple[AcceptedDocument, ...]:
        """Give the accepted documents of a service, oldest first."""
        ...
