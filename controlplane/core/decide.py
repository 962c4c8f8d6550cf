"""The function to read first: from signals to weights, for one service, at one moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controlplane.core.guards import Occasion, Pipeline, judge, quantise, run
from controlplane.core.guards.bounds import equal
from controlplane.core.guards.context import GuardContext
from controlplane.core.memory import align, carry, recall, remember, remember_frozen
from controlplane.core.report import states_of, warnings_of
from controlplane.core.strategies import BUILTIN, Law, LawResult, LawView, Registry
from controlplane.model.decision import Decision, ServiceInputs, ServiceMemory, Stage
from controlplane.model.weights import WeightVector


def decide(
    inputs: ServiceInputs,
    memory: ServiceMemory,
    now: float,
    *,
    registry: Registry = BUILTIN,
    pipeline: Pipeline = Pipeline(),  # noqa: B008 - frozen
) -> Decision:
    """Decide on the weights of one service. Pure: equal arguments, equal decision, on every replica.

    The law gives raw figures; guards turn them into shares; the shares become integers, published if
    that is worth it. Without endpoints the vector is empty. While frozen, nobody is asked. `now` is on
    the monotonic axis of the times in `memory`; should it run backwards, no time has passed.

    Raises:
        ValueError: if the strategy's law is not in `registry`, or refuses its parameters (`core.parse`
            lets neither through).
    """
    inputs = replace(inputs, table=align(inputs.table, inputs.topology.ids))
    if inputs.freeze or not inputs.topology.endpoints:
        return _freeze(inputs, memory, now)
    law = _find_law(inputs, registry)
    opinion = _consult(law, inputs)
    context = recall(inputs, memory, now, opinion.raw, needs_signals=law.needs_signals)
    merit = run(pipeline.merit, context, opinion.raw)
    delivery = run(pipeline.delivery, context, merit[-1].values)
    proposed = quantise(context.endpoints, delivery[-1].values)
    verdict = judge(memory.published, proposed, _occasion(context, memory, inputs), context.guards)
    return _conclude(
        Decision(
            service=inputs.topology.service,
            decided_at=now,
            inputs=inputs,
            weights=proposed,
            proposed=proposed,
            previous=memory.published,
            is_published=verdict.is_published,
            publish_reason=verdict.reason,
            stages=(_law_stage(law, opinion), *merit, *delivery, _last_stage(proposed)),
            states=states_of(context, inputs),
            warnings=warnings_of(context, inputs, law, opinion, proposed),
            memory=remember(context, memory, inputs, merit[-1].values),
        ),
    )


def _find_law(inputs: ServiceInputs, registry: Registry) -> Law[object]:
    law = registry.get(inputs.strategy.law)
    if law is None:
        raise ValueError(f"there is no law `{inputs.strategy.law}`")
    return law


def _consult(law: Law[object], inputs: ServiceInputs) -> LawResult:
    strategy = inputs.strategy
    view = LawView(
        table=inputs.table,
        topology=inputs.topology,
        guards=strategy.guards,
        window_seconds=strategy.signals.window_seconds,
    )
    return law.opine(view, strategy.parameters)


def _freeze(inputs: ServiceInputs, memory: ServiceMemory, now: float) -> Decision:
    """Give the kill switch's weights: the last ones, or equal. Newcomers get the median.

    Also answers for a service without endpoints, where there is nothing to weigh.
    """
    ids = inputs.topology.ids
    published = memory.published
    if inputs.freeze == "equal" or published is None:
        proposed = quantise(ids, equal(len(ids)))
    elif published.endpoints == ids:
        proposed = published
    else:
        proposed = quantise(ids, carry(published, ids))
    occasion = Occasion(seconds_since_published=np.inf, is_frozen=bool(inputs.freeze))
    verdict = judge(published, proposed, occasion, inputs.strategy.guards)
    return _conclude(
        Decision(
            service=inputs.topology.service,
            decided_at=now,
            inputs=inputs,
            weights=proposed,
            proposed=proposed,
            previous=memory.published,
            is_published=verdict.is_published,
            publish_reason=verdict.reason,
            stages=(replace(_last_stage(proposed), name="freeze"),),
            states=dict.fromkeys(ids, "held"),
            warnings=(f"frozen: {inputs.freeze}",) if inputs.freeze else (),
            memory=remember_frozen(memory, inputs, now, proposed),
        ),
    )


def _occasion(context: GuardContext, memory: ServiceMemory, inputs: ServiceInputs) -> Occasion:
    published_at = memory.published_at
    return Occasion(
        seconds_since_published=np.inf if published_at is None else max(0.0, context.now - published_at),
        is_strategy_new=memory.strategy_hash not in {"", inputs.strategy_hash},
        is_emergency_new=not context.penalty_until.keys() <= memory.penalty_until.keys(),
        is_holding=context.outage is not None and context.outage.is_holding,
        is_exact=not context.needs_signals,
    )


def _conclude(decision: Decision) -> Decision:
    """Write the publication into the memory, or put the published weights back where there is none."""
    memory = decision.memory
    if decision.is_published:
        published = replace(memory, published=decision.proposed, published_at=decision.decided_at)
        return replace(decision, memory=published)
    return replace(decision, weights=memory.published or decision.proposed)


def _law_stage(law: Law[object], opinion: LawResult) -> Stage:
    opinion.raw.setflags(write=False)
    for term in opinion.terms.values():
        term.setflags(write=False)
    return Stage(f"law:{law.name}", opinion.raw, terms=opinion.terms)


def _last_stage(proposed: WeightVector) -> Stage:
    values = np.array(proposed.shares, dtype=np.float64)
    values.setflags(write=False)
    return Stage("quantise", values)
