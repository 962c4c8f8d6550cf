"""The arithmetic from sample to weight, as a decision recorded it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.model.decision import Decision, Stage
from controlplane.model.signals import Floats, Provenance, SignalTable
from controlplane.model.topology import EndpointId
from controlplane.ops.views.common import Document, age, document, find_service
from controlplane.ops.views.services import shares_of
from controlplane.runtime.state import StateView


def explain_view(view: StateView, service: str, endpoint: EndpointId | None = None) -> Document | None:
    """Explain a service's newest decision, for one endpoint or for all; `None` if there is no such
    service, no decision yet, or no such endpoint in it.

    `endpoints` has, for each: its signals (value, age, origin, or why a sample was dropped), its value
    after each stage with the stage's terms and reason, and the weight that came out.
    """
    found = find_service(view, service)
    if found is None or found.decision is None:
        return None
    decision = found.decision
    known = decision.inputs.topology.ids
    if endpoint is not None and endpoint not in known:
        return None
    wanted = known if endpoint is None else (endpoint,)
    rows = {each: row for row, each in enumerate(known)}
    lookup = _Lookup.of(decision)
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
        endpoints=[_explain(decision, lookup, rows[each], each) for each in wanted],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    """A decision's columns by endpoint, made once: explaining 10,000 endpoints stays linear."""

    weights: Mapping[EndpointId, int]
    shares: Mapping[EndpointId, float]
    proposed: Mapping[EndpointId, float]
    origins: Mapping[str, Provenance]
    table_rows: Mapping[EndpointId, int]
    dropped: Mapping[EndpointId, Mapping[str, str]]

    @classmethod
    def of(cls, decision: Decision) -> _Lookup:
        table = decision.inputs.table
        dropped: dict[EndpointId, dict[str, str]] = {}
        for drop in table.drops:
            dropped.setdefault(drop.endpoint, {})[drop.signal] = drop.reason
        return cls(
            weights=decision.weights.as_mapping(),
            shares=shares_of(decision.weights),
            proposed=shares_of(decision.proposed),
            origins={found.signal: found for found in table.provenance},
            table_rows={endpoint: row for row, endpoint in enumerate(table.endpoints)},
            dropped=dropped,
        )


def _explain(decision: Decision, lookup: _Lookup, row: int, endpoint: EndpointId) -> Document:
    return {
        "endpoint": endpoint,
        "state": decision.states.get(endpoint, ""),
        "weight": lookup.weights.get(endpoint),
        "share": lookup.shares.get(endpoint),
        "proposed_share": lookup.proposed.get(endpoint),
        "signals": _signals(decision.inputs.table, lookup, endpoint),
        "stages": [_stage(stage, row, endpoint) for stage in decision.stages],
    }


def _signals(table: SignalTable, lookup: _Lookup, endpoint: EndpointId) -> list[Document]:
    dropped = lookup.dropped.get(endpoint, {})
    row = lookup.table_rows.get(endpoint)
    columns = {signal: column for column, signal in enumerate(table.signals)}
    rows: list[Document] = []
    for signal in sorted(columns.keys() | dropped.keys()):
        column = columns.get(signal)
        origin = lookup.origins.get(signal)
        is_there = row is not None and column is not None
        rows.append(
            {
                "signal": signal,
                "value": table.values[row, column] if is_there else None,
                "age_seconds": table.age_seconds[row, column] if is_there else None,
                "source": origin.source if origin else "",
                "query": origin.query if origin else "",
                "dropped": dropped.get(signal, ""),
            }
        )
    return rows


def _stage(stage: Stage, row: int, endpoint: EndpointId) -> Document:
    return {
        "name": stage.name,
        "value": _cell(stage.values, row),
        "reason": stage.reasons.get(endpoint, ""),
        "terms": {name: _cell(column, row) for name, column in stage.terms.items()},
    }


def _cell(column: Floats, row: int) -> float | None:
    """Read one endpoint's cell; a stage with nothing to say of endpoints has an empty column."""
    return float(column[row]) if row < len(column) else None
