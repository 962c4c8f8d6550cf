"""Services: their documents, their weights, and what has been in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from controlplane.model.decision import Decision
from controlplane.model.documents import AcceptedDocument
from controlplane.model.signals import SignalTable
from controlplane.model.topology import Endpoint, EndpointId
from controlplane.model.weights import WeightVector
from controlplane.ops.views.common import (
    SCHEMA_VERSION,
    Document,
    age,
    document,
    find_service,
    iso,
    rejection,
)
from controlplane.runtime.state import ServiceView, StateView

TREND_RATIO = 0.01
"""A share counts as rising or falling when what the pipeline arrived at differs by more than this part."""


def services_view(view: StateView) -> Document:
    """List services, and documents refused for services that have none in force."""
    now = view.at_seconds
    return document(
        view,
        services=[service_summary(service, now) for service in view.services],
        orphans=[
            {"service": name, "rejected": rejection(found, now)}
            for name, found in sorted(view.orphans.items())
        ],
    )


def service_view(view: StateView, name: str) -> Document | None:
    """Describe one service's documents, flags, signals and endpoints; `None` if nobody knows it.

    A service whose only document was refused has `strategy` `None` and `rejected` set.
    """
    service = find_service(view, name)
    now = view.at_seconds
    if service is None:
        orphan = view.orphans.get(name)
        if orphan is None:
            return None
        return document(view, service=name, strategy=None, rejected=rejection(orphan, now))
    decision = service.decision
    return document(
        view,
        **service_summary(service, now),
        rejected=rejection(service.rejected, now),
        rejected_canary=rejection(service.rejected_canary, now),
        warnings=list(decision.warnings) if decision else [],
        signals=_signals(service),
        readings=_readings(service, now),
    )


def service_summary(service: ServiceView, now_seconds: float) -> Document:
    """Sum up one service in one row."""
    decision = service.decision
    canary = service.canary
    return {
        "service": service.service,
        "strategy": {
            "version": service.strategy.version,
            "hash": service.strategy_hash,
            "revision": service.strategy_revision,
            "law": service.strategy.law,
            "description": service.strategy.description,
        },
        "endpoints": len(service.topology.endpoints),
        "decision_age_seconds": age(now_seconds, decision.decided_at) if decision else None,
        "publish_reason": decision.publish_reason if decision else "",
        "is_rejected": service.rejected is not None or service.rejected_canary is not None,
        "canary_phase": canary.state.phase if canary else None,
        "freeze": service.freeze,
        "flags": sorted(service.flags),
    }


def weights_view(view: StateView, name: str) -> Document | None:
    """Describe each endpoint's weight; `None` if the service is unknown.

    `weight` is what Envoy has, `proposed_share` what the pipeline arrived at, `previous_weight` what
    Envoy had before this decision. Rows are sorted by endpoint.
    """
    service = find_service(view, name)
    if service is None:
        return None
    decision = service.decision
    now = view.at_seconds
    return document(
        view,
        service=name,
        law=service.strategy.law,
        strategy_version=service.strategy.version,
        strategy_hash=service.strategy_hash,
        freeze=service.freeze,
        flags=sorted(service.flags),
        decision_age_seconds=age(now, decision.decided_at) if decision else None,
        is_published=decision.is_published if decision else False,
        publish_reason=decision.publish_reason if decision else "",
        published_age_seconds=age(now, decision.memory.published_at) if decision else None,
        warnings=list(decision.warnings) if decision else [],
        endpoints=_weight_rows(service),
    )


def history_view(name: str, accepted: Sequence[AcceptedDocument], *, with_bodies: bool = False) -> Document:
    """List the documents that have been in force, oldest first."""
    return {
        "schema_version": SCHEMA_VERSION,
        "service": name,
        "documents": [
            {
                "version": found.version,
                "hash": found.hash,
                "accepted_at": iso(found.accepted_at_unix_seconds),
                "accepted_at_unix_seconds": found.accepted_at_unix_seconds,
                "size_bytes": len(found.body.encode("utf-8", "surrogatepass")),
                **({"body": found.body} if with_bodies else {}),
            }
            for found in accepted
        ],
    }


def reasons_of(decision: Decision) -> dict[EndpointId, list[str]]:
    """Collect why each endpoint was treated specially: ``stage: reason``, in the order of stages."""
    found: dict[EndpointId, list[str]] = {}
    for stage in decision.stages:
        for endpoint, reason in stage.reasons.items():
            found.setdefault(endpoint, []).append(f"{stage.name}: {reason}")
    return found


def shares_of(vector: WeightVector | None) -> Mapping[EndpointId, float]:
    """Give each endpoint's share of a vector; empty for none."""
    return dict(zip(vector.endpoints, vector.shares, strict=True)) if vector else {}


def _weight_rows(service: ServiceView) -> list[Document]:
    decision = service.decision
    known = {endpoint.id: endpoint for endpoint in service.topology.endpoints}
    if decision is None:
        return [_bare_row(endpoint) for endpoint in known.values()]
    weights = decision.weights.as_mapping()
    shares, proposed = shares_of(decision.weights), shares_of(decision.proposed)
    previous = decision.previous.as_mapping() if decision.previous else {}
    reasons = reasons_of(decision)
    return [
        _place(known.get(endpoint), endpoint)
        | {
            "weight": weights.get(endpoint),
            "share": shares.get(endpoint),
            "previous_weight": previous.get(endpoint),
            "proposed_share": proposed.get(endpoint),
            "trend": _trend(shares.get(endpoint), proposed.get(endpoint)),
            "state": decision.states.get(endpoint, ""),
            "reasons": reasons.get(endpoint, []),
        }
        for endpoint in sorted(known.keys() | weights.keys())
    ]


def _bare_row(endpoint: Endpoint) -> Document:
    unknown = dict.fromkeys(("weight", "share", "previous_weight", "proposed_share"))
    return _place(endpoint, endpoint.id) | unknown | {"trend": "", "state": "undecided", "reasons": []}


def _place(endpoint: Endpoint | None, endpoint_id: EndpointId) -> Document:
    return {
        "endpoint": endpoint_id,
        "zone": endpoint.zone if endpoint else "",
        "version": endpoint.version if endpoint else "",
        "gpu": endpoint.gpu if endpoint else "",
        "health": endpoint.health if endpoint else "gone",
    }


def _trend(share: float | None, proposed: float | None) -> str:
    if share is None or proposed is None:
        return ""
    if abs(proposed - share) <= TREND_RATIO * share:
        return "steady"
    return "rising" if proposed > share else "falling"


def _signals(service: ServiceView) -> list[Document]:
    """For each signal, for how many endpoints it has a value, and where it comes from."""
    unresolved = service.readings.unresolved if service.readings else ()
    table = service.decision.inputs.table if service.decision else None
    resolved = _resolved(table) if table else {}
    sources = {found.signal: found for found in (table.provenance if table else ())}
    return [
        {
            "signal": signal,
            "resolved_endpoints": resolved.get(signal, 0),
            "endpoints": len(service.topology.endpoints),
            "is_unresolved": signal in unresolved,
            "source": sources[signal].source if signal in sources else "",
            "query": sources[signal].query if signal in sources else "",
        }
        for signal in sorted(resolved.keys() | set(unresolved))
    ]


def _resolved(table: SignalTable) -> dict[str, int]:
    counts = np.count_nonzero(~np.isnan(table.values), axis=0)
    return {signal: int(count) for signal, count in zip(table.signals, counts, strict=True)}


def _readings(service: ServiceView, now_seconds: float) -> Document | None:
    readings = service.readings
    if readings is None:
        return None
    drops = service.decision.inputs.table.drops if service.decision else ()
    by_reason: dict[str, int] = {}
    for drop in drops:
        by_reason[drop.reason] = by_reason.get(drop.reason, 0) + 1
    return {
        "age_seconds": age(now_seconds, readings.read_at_seconds),
        "samples": len(readings.samples),
        "dropped": dict(sorted(by_reason.items())),
        "unmatched_series": readings.unmatched_series,
        "failures": sorted(readings.failures),
    }
