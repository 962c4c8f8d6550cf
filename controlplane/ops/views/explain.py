"""The arithmetic from sample to weight, as a decision recorded it."""

from __future__ import annotations

import dataclasses

from controlplane.core.explain import explain
from controlplane.model.decision import Decision, Stage
from controlplane.model.signals import Floats
from controlplane.model.topology import EndpointId
from controlplane.ops.views.common import Document, age, document, find_service
from controlplane.ops.views.services import shares_of
from controlplane.runtime.state import StateView


def explain_endpoint_view(view: StateView, service: str, endpoint: EndpointId) -> Document | None:
    """Explain one endpoint's weight: every signal, and every stage with its terms.

    `None` if there is no such service, no decision yet, or no such endpoint in it.
    """
    found = find_service(view, service)
    if found is None or found.decision is None:
        return None
    decision = found.decision
    explanation = explain(decision, endpoint)
    if explanation is None:
        return None
    return document(
        view,
        **dataclasses.asdict(explanation),
        decision_age_seconds=age(view.at_seconds, decision.decided_at),
        freeze=decision.inputs.freeze,
    )


def explain_view(view: StateView, service: str) -> Document | None:
    """Explain a service's newest decision: each endpoint's figure after each stage.

    `None` if there is no such service, or no decision yet. `values` and `reasons` of an endpoint are in
    the order of `stages`. Linear in endpoints, so that it may be asked of a service with 10,000.
    """
    found = find_service(view, service)
    if found is None or found.decision is None:
        return None
    decision = found.decision
    return document(
        view,
        service=service,
        law=decision.inputs.strategy.law,
        strategy_version=decision.inputs.strategy.version,
        strategy_hash=decision.inputs.strategy_hash,
        decision_age_seconds=age(view.at_seconds, decision.decided_at),
        is_published=decision.is_published,
        publish_reason=decision.publish_reason,
        freeze=decision.inputs.freeze,
        warnings=list(decision.warnings),
        stages=[{"name": stage.name, "notes": list(stage.notes)} for stage in decision.stages],
        endpoints=_rows(decision),
    )


def _rows(decision: Decision) -> list[Document]:
    weights = decision.weights.as_mapping()
    shares, proposed = shares_of(decision.weights), shares_of(decision.proposed)
    return [
        {
            "endpoint": endpoint,
            "state": decision.states.get(endpoint, ""),
            "weight": weights.get(endpoint),
            "share": shares.get(endpoint),
            "proposed_share": proposed.get(endpoint),
            "values": [_cell(stage.values, row) for stage in decision.stages],
            "reasons": [_reason(stage, endpoint) for stage in decision.stages],
        }
        for row, endpoint in enumerate(decision.inputs.topology.ids)
    ]


def _reason(stage: Stage, endpoint: EndpointId) -> str:
    return stage.reasons.get(endpoint, "")


def _cell(column: Floats, row: int) -> float | None:
    """Read one endpoint's cell; a stage with nothing to say of endpoints has an empty column."""
    return float(column[row]) if row < len(column) else None
