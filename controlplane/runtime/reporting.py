"""What the control plane says about itself: the state view, and the status document of each service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.core.acceptance import Refused
from controlplane.model.fleet import FleetStatus, SyncState
from controlplane.model.health import SourceHealth
from controlplane.model.resources import Snapshot
from controlplane.model.rollout import TOTAL_PARTS, CanaryState
from controlplane.model.signals import Readings
from controlplane.runtime.engine import EngineState, topology_of
from controlplane.runtime.state import (
    CanaryView,
    RejectedDocument,
    ServiceView,
    StateView,
)

STATUS_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moment:
    """What a view is made of besides the engine's state."""

    at_seconds: float
    readings: Mapping[str, Readings]
    sources: tuple[SourceHealth, ...]
    fleet: FleetStatus
    snapshot: Snapshot | None
    build_failures: Mapping[str, str]
    refused_at: Mapping[tuple[str, int], float]
    """(key, revision) → when the document was refused."""
    last_tick_seconds: float | None
    started_from_checkpoint: bool
    not_ready_reason: str
    store_degraded: str


def state_view(state: EngineState, moment: Moment) -> StateView:
    """Join everything into the view that admin API, metrics and status read."""
    registry = state.registry
    return StateView(
        at_seconds=moment.at_seconds,
        is_ready=not moment.not_ready_reason,
        not_ready_reason=moment.not_ready_reason,
        started_from_checkpoint=moment.started_from_checkpoint,
        services=tuple(_service_view(state, moment, service) for service in registry.active),
        orphans={
            service: _rejected(refused, moment)
            for service, refused in sorted(registry.strategies.refused.items())
            if service not in registry.active
        },
        sources=moment.sources,
        fleet=moment.fleet,
        versions={type_url: found.version for type_url, found in moment.snapshot.sets.items()}
        if moment.snapshot
        else {},
        last_tick_seconds=moment.last_tick_seconds,
        store_degraded=moment.store_degraded,
    )


def status_document(view: StateView, service: ServiceView) -> dict[str, Any]:
    """Build ``status/<service>``: changes only when something worth telling changed."""
    return {
        "schema_version": STATUS_SCHEMA_VERSION,
        "service": service.service,
        "active": {
            "version": service.strategy.version,
            "hash": service.strategy_hash,
            "law": service.strategy.law,
        },
        "rejected": _rejection_document(service.rejected),
        "canary": _canary_document(service.canary),
        "rejected_canary": _rejection_document(service.rejected_canary),
        "freeze": service.freeze,
        "flags": list(service.flags),
        "endpoints": len(service.topology.endpoints),
        "nodes": {
            "connected": len(view.fleet.nodes),
            "nacked": sorted(
                node.node_id
                for node in view.fleet.nodes
                if any(status.state is SyncState.NACKED for status in node.types)
            ),
        },
    }


def orphan_document(service: str, rejected: RejectedDocument) -> dict[str, Any]:
    """Build the status of a service whose only document was refused."""
    return {
        "schema_version": STATUS_SCHEMA_VERSION,
        "service": service,
        "active": None,
        "rejected": _rejection_document(rejected),
    }


def _service_view(state: EngineState, moment: Moment, service: str) -> ServiceView:
    registry = state.registry
    accepted = registry.strategies.accepted[service]
    refused = registry.strategies.refused.get(service)
    refused_canary = registry.canaries.refused.get(service)
    return ServiceView(
        service=service,
        strategy=accepted.spec,
        strategy_hash=accepted.hash,
        strategy_revision=accepted.document.revision,
        topology=topology_of(state.membership, service),
        decision=state.decisions.get(service),
        readings=moment.readings.get(service),
        rejected=_rejected(refused, moment) if refused else None,
        rejected_canary=_rejected(refused_canary, moment) if refused_canary else None,
        canary=_canary_view(state, service),
        freeze=registry.freeze(service),
        flags=_flags(state, moment, service),
    )


def _flags(state: EngineState, moment: Moment, service: str) -> tuple[str, ...]:
    registry = state.registry
    word = "store_reset" if registry.is_reset else "deleted"
    found = {
        f"strategy_{word}": service in registry.strategies.missing,
        f"canary_{word}": service in registry.canaries.missing,
        "topology_held": service in state.membership.held_since,
        "topology_unknown": state.membership.topology.get(service) is None,
        "build_failed": service in moment.build_failures,
    }
    return tuple(sorted(flag for flag, is_set in found.items() if is_set))


def _canary_view(state: EngineState, service: str) -> CanaryView | None:
    accepted = state.registry.canaries.accepted.get(service)
    if accepted is None:
        return None
    canary, baseline = state.observations.get(service, (None, None))
    return CanaryView(
        spec=accepted.spec,
        spec_hash=accepted.hash,
        state=state.canaries.get(service, CanaryState()),
        canary=canary,
        baseline=baseline,
    )


def _rejected(refused: Refused, moment: Moment) -> RejectedDocument:
    document = refused.document
    return RejectedDocument(
        key=document.key,
        revision=document.revision,
        rejected=refused.rejected,
        at_seconds=moment.refused_at.get((document.key, document.revision), moment.at_seconds),
    )


def _rejection_document(rejected: RejectedDocument | None) -> dict[str, Any] | None:
    if rejected is None:
        return None
    return {
        "key": rejected.key,
        "revision": rejected.revision,
        "problems": [
            {"path": problem.path, "reason": problem.reason, "value": problem.value}
            for problem in rejected.rejected.problems
        ],
    }


def _canary_document(canary: CanaryView | None) -> dict[str, Any] | None:
    if canary is None:
        return None
    state = canary.state
    return {
        "hash": canary.spec_hash,
        "phase": state.phase.value,
        "step": state.step_index,
        "weight_percent": round(100 * state.canary_parts / TOTAL_PARTS, 3),
        "verdict": state.last_verdict.value if state.last_verdict else None,
        "reason": state.reason,
    }
