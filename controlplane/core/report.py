"""What people should know of a decision: a word for each endpoint, and warnings."""

from __future__ import annotations

from typing import Final

import numpy as np

from controlplane.core.guards.context import GuardContext
from controlplane.core.strategies import Law, LawResult
from controlplane.model.decision import ServiceInputs
from controlplane.model.signals import Signal
from controlplane.model.topology import EndpointId, Health
from controlplane.model.weights import WeightVector

SLOTS_PER_SMALLEST_SHARE: Final = 100
"""A Maglev table gives every host its ideal number of slots ± 2: at 100 slots that is 2 %."""

MIN_FLAT_ENDPOINTS: Final = 3
"""Two equal values are a coincidence."""

_COUNTS: Final = frozenset({Signal.RUNNING, Signal.WAITING, Signal.GPU_FAULT})
"""Small integers, often equal without anything being wrong."""


def states_of(context: GuardContext, inputs: ServiceInputs) -> dict[EndpointId, str]:
    """Say in a word how each endpoint is, the most pressing first."""
    outage = context.outage
    states = np.full(context.count, "ok", dtype=object)
    states[context.warming < 1.0] = "warming"
    if outage is not None:
        states[:] = "held" if outage.is_holding else "fading"
    if context.needs_signals:
        is_unknown = np.isnan(context.sampled_at)
        states[is_unknown & np.isnan(context.smoothed_at)] = "no data"
        if outage is None:
            states[is_unknown & ~np.isnan(context.smoothed_at)] = "stale"
    states[context.is_penalised] = "emergency"
    for row, endpoint in enumerate(inputs.topology.endpoints):
        if endpoint.health is not Health.HEALTHY:
            states[row] = endpoint.health.value
    return dict(zip(context.endpoints, states.tolist(), strict=True))


def warnings_of(
    context: GuardContext,
    inputs: ServiceInputs,
    law: Law[object],
    opinion: LawResult,
    proposed: WeightVector,
) -> tuple[str, ...]:
    """Collect the warnings of a decision: the law's, the signals', the table's."""
    warnings = [*opinion.warnings]
    if context.outage is not None:
        warnings.append(f"signals lost: {context.outage.reason}")
    if context.is_panicking:
        warnings.append("panic: too few endpoints are fit, equal weights over all")
    warnings.extend(_flat_signals(inputs, law))
    warnings.extend(_table_size(inputs, proposed))
    return tuple(warnings)


def _flat_signals(inputs: ServiceInputs, law: Law[object]) -> list[str]:
    """Name signals that are the same everywhere: mostly a query that forgot to split by endpoint.

    Zero everywhere is an idle fleet.
    """
    flat: list[str] = []
    for name in law.signals:
        if name in _COUNTS:
            continue
        column = inputs.table.column(name)
        known = column[np.isfinite(column)]
        if len(known) >= MIN_FLAT_ENDPOINTS and known[0] != 0 and (known == known[0]).all():
            flat.append(f"flat signal: `{name}` is {known[0]:g} for all {len(known)} endpoints")
    return flat


def _table_size(inputs: ServiceInputs, proposed: WeightVector) -> list[str]:
    smallest = min(proposed.weights) / sum(proposed.weights)
    needed = SLOTS_PER_SMALLEST_SHARE / smallest
    size = inputs.strategy.maglev.table_size
    if size >= needed:
        return []
    warning = (
        f"`maglev.table_size` {size} is too small for the least share {smallest:.2g}: weights are exact "
        f"from about {needed:.0f} on"
    )
    return [warning]
