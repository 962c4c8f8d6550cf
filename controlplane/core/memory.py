"""Line the memory of the last decision up with today's endpoints, and write the next memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from controlplane.core.columns import median
from controlplane.core.guards.bounds import equal, scaled
from controlplane.core.guards.context import GuardContext, Outage
from controlplane.core.guards.emergency import find_penalties, penalised_rows
from controlplane.core.guards.evidence import has_opinion
from controlplane.model.decision import ServiceInputs, ServiceMemory
from controlplane.model.signals import Floats, SignalTable
from controlplane.model.topology import EndpointId, Health
from controlplane.model.weights import WeightVector

_STILL = 1e-9
"""Shares that differ by less did not move: it is the rounding of scaling them to 1."""


def align(table: SignalTable, endpoints: tuple[EndpointId, ...]) -> SignalTable:
    """Give the table's rows for exactly these endpoints; those it does not have are unknown.

    The table was read before the decision: the topology may have changed in between.
    """
    if table.endpoints == endpoints:
        return table
    row_of = {endpoint: row for row, endpoint in enumerate(table.endpoints)}
    rows = np.array([row_of.get(endpoint, -1) for endpoint in endpoints], dtype=np.int64)
    values = np.full((len(endpoints), len(table.signals)), np.nan)
    ages = np.full_like(values, np.nan)
    values[rows >= 0] = table.values[rows[rows >= 0]]
    ages[rows >= 0] = table.age_seconds[rows[rows >= 0]]
    return SignalTable(endpoints, table.signals, values, ages, table.provenance, table.drops)


def rebase(shares: Mapping[EndpointId, float], endpoints: tuple[EndpointId, ...]) -> Floats:
    """Carry shares over to other endpoints: newcomers get the median, then all are scaled to 1.

    Unchanged endpoints get their shares back bit for bit. Without anything to carry over: equal.
    """
    found = _column(shares, endpoints)
    is_known = np.isfinite(found) & (found > 0)
    if not is_known.any():
        return equal(len(endpoints))
    return scaled(np.where(is_known, found, median(found[is_known])), 1.0)


def recall(
    inputs: ServiceInputs, memory: ServiceMemory, now: float, raw: Floats, *, needs_signals: bool
) -> GuardContext:
    """Gather what the guards need. `inputs.table` has the topology's endpoints; `raw` is the law's."""
    ids = inputs.table.endpoints
    strategy = inputs.strategy
    window = strategy.signals.window_seconds
    penalties = find_penalties(inputs.table, strategy.guards, window, memory.penalty_until, now)
    healths = [endpoint.health for endpoint in inputs.topology.endpoints]
    is_healthy = np.array([health is Health.HEALTHY for health in healths], dtype=np.bool_)
    first_seen = _column(memory.first_seen, ids)
    is_known = np.isfinite(inputs.table.age_seconds) & np.isfinite(inputs.table.values)
    youngest = np.where(is_known, inputs.table.age_seconds, np.inf).min(axis=1, initial=np.inf)
    previous = rebase(_last_shares(memory), ids)
    return GuardContext(
        guards=strategy.guards,
        endpoints=ids,
        now=now,
        elapsed_seconds=_since(memory.decided_at, now),
        step_seconds=_since(memory.decided_at if memory.moved_at is None else memory.moved_at, now),
        previous=previous,
        published=None if memory.published is None else carry(memory.published, ids),
        age_seconds=np.where(np.isnan(first_seen), 0.0, np.maximum(now - first_seen, 0.0)),
        sampled_at=np.where(np.isinf(youngest), np.nan, now - youngest),
        smoothed_at=_column(memory.sample_times, ids),
        is_serving=np.array([health is not Health.DRAINING for health in healths], dtype=np.bool_),
        is_healthy=is_healthy,
        penalty_until=penalties.until,
        penalty_reasons=penalties.reasons,
        is_penalised=penalised_rows(ids, penalties),
        needs_signals=needs_signals,
        outage=_outage(inputs, memory, now, raw, previous) if needs_signals else None,
    )


def _outage(
    inputs: ServiceInputs, memory: ServiceMemory, now: float, raw: Floats, previous: Floats
) -> Outage | None:
    """Tell whether too little is known to follow the law, judged by the endpoints that are healthy."""
    reason = _darkness(inputs, raw)
    if not reason:
        return None
    guards = inputs.strategy.guards
    known_at = memory.fresh_at if memory.fresh_at is not None else memory.published_at
    origin = rebase(memory.fade_from, inputs.table.endpoints) if memory.fade_from else previous
    if known_at is None:
        return Outage(reason, 1.0, origin)
    fading = now - known_at - guards.hold_seconds
    return Outage(reason, min(1.0, max(0.0, fading / guards.fade_seconds)), origin)


def _darkness(inputs: ServiceInputs, raw: Floats) -> str:
    healthy = [endpoint.health is Health.HEALTHY for endpoint in inputs.topology.endpoints]
    counted = np.array(healthy if any(healthy) else [True] * len(healthy), dtype=np.bool_)
    total = int(counted.sum())
    fresh = int(np.isfinite(inputs.table.values[counted]).any(axis=1).sum())
    opinions = int(has_opinion(raw[counted]).sum())
    needed = min(2, total)
    if fresh < needed or 2 * fresh < total:
        return f"{fresh} of {total} endpoints have fresh signals"
    if opinions < needed:
        return f"the law has an opinion of {opinions} of {total} endpoints"
    return ""


def remember(
    context: GuardContext, memory: ServiceMemory, inputs: ServiceInputs, merit: Floats
) -> ServiceMemory:
    """Write what the next decision needs, apart from the publication. Plain JSON values only.

    The next decision starts from the `merit` shares; after a panic, from equal.
    """
    ids = context.endpoints
    outage = context.outage
    used = np.fmax(context.sampled_at, context.smoothed_at)
    if outage is not None:  # nothing was smoothed
        used = context.smoothed_at
    return ServiceMemory(
        published=memory.published,
        published_at=memory.published_at,
        smoothed=_mapping(ids, equal(context.count) if context.is_panicking else merit),
        first_seen=_mapping(ids, np.asarray(context.now - context.age_seconds), memory.first_seen),
        decided_at=context.now,
        moved_at=context.now if _has_moved(context, merit) else memory.moved_at,
        fresh_at=memory.fresh_at if outage is not None else context.now,
        penalty_until=dict(context.penalty_until),
        sample_times=_mapping(ids, used),
        fade_from={} if outage is None else _mapping(ids, outage.origin),
        strategy_hash=inputs.strategy_hash,
    )


def remember_frozen(
    memory: ServiceMemory, inputs: ServiceInputs, now: float, frozen: WeightVector
) -> ServiceMemory:
    """Write the memory of a decision that asked nobody: the next one starts from the frozen weights.

    Time goes on, so that thawing does not count the frozen time as one long step.
    """
    known = set(frozen.endpoints)
    return ServiceMemory(
        published=memory.published,
        published_at=memory.published_at,
        smoothed=dict(zip(frozen.endpoints, frozen.shares, strict=True)),
        first_seen={endpoint: memory.first_seen.get(endpoint, now) for endpoint in frozen.endpoints},
        decided_at=now,
        moved_at=now,
        fresh_at=memory.fresh_at,
        penalty_until={key: value for key, value in memory.penalty_until.items() if key in known},
        sample_times={key: value for key, value in memory.sample_times.items() if key in known},
        strategy_hash=inputs.strategy_hash,
    )


def carry(vector: WeightVector, endpoints: tuple[EndpointId, ...]) -> Floats:
    """Shares of a published vector on today's endpoints."""
    return rebase(dict(zip(vector.endpoints, vector.shares, strict=True)), endpoints)


def _since(then: float | None, now: float) -> float:
    return float("inf") if then is None else max(0.0, now - then)


def _has_moved(context: GuardContext, merit: Floats) -> bool:
    """Tell if the shares the next decision starts from differ from those this one started from."""
    is_first = not np.isfinite(context.elapsed_seconds)
    return is_first or bool(np.abs(merit - context.previous).max(initial=0.0) > _STILL)


def _last_shares(memory: ServiceMemory) -> Mapping[EndpointId, float]:
    if memory.smoothed or memory.published is None:
        return memory.smoothed
    return dict(zip(memory.published.endpoints, memory.published.shares, strict=True))


def _column(values: Mapping[EndpointId, float], endpoints: tuple[EndpointId, ...]) -> Floats:
    unknown = float("nan")
    return np.fromiter(
        (values.get(endpoint, unknown) for endpoint in endpoints), np.float64, len(endpoints)
    )


def _mapping(
    endpoints: tuple[EndpointId, ...], values: Floats, before: Mapping[EndpointId, float] | None = None
) -> dict[EndpointId, float]:
    """Endpoint → finite value. Values known `before` are kept as they were, to the last bit."""
    known = {
        endpoint: value
        for endpoint, value in zip(endpoints, values.tolist(), strict=True)
        if value == value  # noqa: PLR0124 - NaN is the only value that differs from itself
    }
    if before:
        known |= {endpoint: before[endpoint] for endpoint in known if endpoint in before}
    return known
