"""Tell how one endpoint came to its weight: every number from the sample to the integer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from controlplane.model.decision import Decision, Stage
from controlplane.model.signals import SignalTable
from controlplane.model.topology import EndpointId
from controlplane.model.weights import WeightVector


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSignal:
    """One signal of the endpoint. `value` and `age_seconds` are `None` when unknown."""

    signal: str
    value: float | None
    age_seconds: float | None
    source: str
    query: str
    dropped: str
    """Why a sample was not used; empty if none was dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTerm:
    """One named intermediate figure."""

    name: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedStage:
    """One step: `before` and `after` are shares (`None` for a law's missing opinion).

    For the law itself, `before` is `None` and `after` its raw figure.
    """

    name: str
    before: float | None
    after: float | None
    reason: str
    notes: tuple[str, ...]
    terms: tuple[ExplainedTerm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything about one endpoint in one decision. JSON types and dataclasses only, no NaN."""

    service: str
    endpoint: EndpointId
    decided_at: float
    state: str
    strategy_version: str
    strategy_hash: str
    law: str
    signals: tuple[ExplainedSignal, ...]
    stages: tuple[ExplainedStage, ...]
    proposed_weight: int
    proposed_share: float
    weight: int | None
    """What Envoy should have now; `None` if the endpoint is not in the published weights."""
    share: float | None
    is_published: bool
    publish_reason: str
    warnings: tuple[str, ...]


def explain(decision: Decision, endpoint: EndpointId) -> Explanation | None:
    """Explain one endpoint's weight; `None` if the decision does not know the endpoint."""
    ids = decision.inputs.topology.ids
    if endpoint not in ids:
        return None
    row = ids.index(endpoint)
    strategy = decision.inputs.strategy
    weight, share = _weight(decision.weights, endpoint)
    proposed_weight, proposed_share = _weight(decision.proposed, endpoint)
    return Explanation(
        service=decision.service,
        endpoint=endpoint,
        decided_at=decision.decided_at,
        state=decision.states.get(endpoint, ""),
        strategy_version=strategy.version,
        strategy_hash=decision.inputs.strategy_hash,
        law=strategy.law,
        signals=_signals(decision.inputs.table, endpoint),
        stages=_stages(decision.stages, row, endpoint),
        proposed_weight=proposed_weight or 0,
        proposed_share=proposed_share or 0.0,
        weight=weight,
        share=share,
        is_published=decision.is_published,
        publish_reason=decision.publish_reason,
        warnings=decision.warnings,
    )


def _weight(vector: WeightVector, endpoint: EndpointId) -> tuple[int | None, float | None]:
    if endpoint not in vector.endpoints:
        return None, None
    weight = vector.weights[vector.endpoints.index(endpoint)]
    return weight, weight / sum(vector.weights)


def _signals(table: SignalTable, endpoint: EndpointId) -> tuple[ExplainedSignal, ...]:
    """List known, queried and dropped signals in the table's order; leave out those nobody asked for."""
    row = table.endpoints.index(endpoint)
    provenance = {each.signal: each for each in table.provenance}
    dropped = {drop.signal: drop.reason for drop in table.drops if drop.endpoint == endpoint}
    listed: list[ExplainedSignal] = []
    for column, name in enumerate(table.signals):
        value = _finite(table.values[row, column])
        origin = provenance.get(name)
        if value is None and origin is None and name not in dropped:
            continue
        listed.append(
            ExplainedSignal(
                signal=name,
                value=value,
                age_seconds=_finite(table.age_seconds[row, column]),
                source=origin.source if origin else "",
                query=origin.query if origin else "",
                dropped=dropped.get(name, ""),
            ),
        )
    return tuple(listed)


def _stages(stages: tuple[Stage, ...], row: int, endpoint: EndpointId) -> tuple[ExplainedStage, ...]:
    explained: list[ExplainedStage] = []
    before: float | None = None
    for stage in stages:
        after = _finite(stage.values[row])
        terms = tuple(
            ExplainedTerm(name=name, value=_finite(values[row])) for name, values in stage.terms.items()
        )
        explained.append(
            ExplainedStage(
                name=stage.name,
                before=before,
                after=after,
                reason=stage.reasons.get(endpoint, ""),
                notes=stage.notes,
                terms=terms,
            ),
        )
        before = after
    return tuple(explained)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
