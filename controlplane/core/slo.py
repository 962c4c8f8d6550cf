"""Service levels: what a subset of endpoints looks like, and whether a canary is good enough."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from controlplane.model.rollout import (
    Analysis,
    CanarySpec,
    MetricCheck,
    Observation,
    SubsetObservation,
    Verdict,
)
from controlplane.model.signals import Floats, Signal, SignalTable
from controlplane.model.strategy import Slo
from controlplane.model.topology import Endpoint, EndpointId, Health, ServiceTopology

ERROR_RATIO = "error_ratio"
"""Figure made of two signals: errors over requests."""

_PER_ENDPOINT = frozenset(
    {
        Signal.RUNNING,
        Signal.WAITING,
        Signal.KV_USAGE_RATIO,
        Signal.WINDOW_REQUESTS,
        Signal.GOOD_REQUESTS_PER_SECOND,
        Signal.REQUESTS_PER_SECOND,
        Signal.ERRORS_PER_SECOND,
        Signal.OUTPUT_TOKENS_PER_SECOND,
        Signal.GPU_UTILIZATION_RATIO,
        Signal.TENSOR_ACTIVE_RATIO,
        Signal.GPU_MEMORY_RATIO,
        Signal.GPU_FAULT,
    }
)
"""Facts about a machine, not about its requests: averaged over endpoints, so that subsets of
different size compare. Everything else is an experience of requests, weighted by their number."""

_PRECEDENCE = (Verdict.FAIL, Verdict.ERROR, Verdict.NO_DATA, Verdict.PASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricJudgement:
    """One check: the figures it saw (`None`: unknown) and the limit in force (`None`: undecidable)."""

    signal: str
    verdict: Verdict
    value: float | None
    baseline: float | None
    limit: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """All checks at one moment. The worst decides: fail, error, no data, pass."""

    verdict: Verdict
    metrics: tuple[MetricJudgement, ...]
    reason: str


def subsets(
    topology: ServiceTopology, spec: CanarySpec
) -> tuple[tuple[EndpointId, ...], tuple[EndpointId, ...]]:
    """Split a service into (canary ids, baseline ids), each in the topology's order.

    An endpoint is canary if all attributes of `spec.canary` match. The baseline is what `spec.baseline`
    selects, or everything (if it is empty), without the canary in either case.
    """
    canary = [endpoint for endpoint in topology.endpoints if _matches(endpoint, spec.canary)]
    taken = {endpoint.id for endpoint in canary}
    baseline = [
        endpoint.id
        for endpoint in topology.endpoints
        if endpoint.id not in taken and _matches(endpoint, spec.baseline)
    ]
    return tuple(endpoint.id for endpoint in canary), tuple(baseline)


def observe(
    table: SignalTable, topology: ServiceTopology, members: Collection[EndpointId]
) -> SubsetObservation:
    """Aggregate the signals of some endpoints; what no endpoint knows is left out, never zero.

    `error_ratio` is the sum of errors over the sum of requests, of endpoints that know both. Latencies
    and ratios of requests are means weighted by `window_requests` (plain means if no member knows its
    number of requests). A weighted mean of quantiles is *not* the quantile of all requests: it lies
    between the best and the worst endpoint's, and is exact when endpoints are alike. Facts about
    machines (queue, KV cache, GPU, rates) are plain means.
    """
    chosen = frozenset(members)
    rows = np.array([endpoint in chosen for endpoint in table.endpoints], dtype=bool)
    requests = table.column(Signal.WINDOW_REQUESTS)[rows]
    figures = {}
    for signal in table.signals:
        weights = np.ones(len(requests)) if signal in _PER_ENDPOINT else _request_weights(requests)
        figure = _weighted_mean(table.column(signal)[rows], weights)
        if figure is not None:
            figures[signal] = figure
    errors = _error_ratio(
        table.column(Signal.ERRORS_PER_SECOND)[rows], table.column(Signal.REQUESTS_PER_SECOND)[rows]
    )
    if errors is not None:
        figures[ERROR_RATIO] = errors
    known = requests[np.isfinite(requests)]
    endpoints = [endpoint for endpoint in topology.endpoints if endpoint.id in chosen]
    return SubsetObservation(
        endpoints=len(endpoints),
        healthy=sum(endpoint.health is Health.HEALTHY for endpoint in endpoints),
        window_requests=float(known.sum()) if len(known) else math.nan,
        figures=figures,
    )


def checks(analysis: Analysis, slo: Slo) -> tuple[MetricCheck, ...]:
    """List what a canary is judged by: its own metrics, else the service's SLO; maybe nothing."""
    return analysis.metrics or tuple(_slo_checks(slo))


def judge(
    analysis: Analysis, slo: Slo, observation: Observation, *, is_baseline_idle: bool = False
) -> Judgement:
    """Judge the canary at this moment.

    A check fails when *every* threshold it gives is exceeded. Too few requests, or an unknown figure,
    is no data; a baseline without endpoints, or a negative figure, is an error. No check at all is
    no data: zero measurements are never success.

    With `is_baseline_idle` (all traffic goes to the canary) a baseline without figures is expected: a
    check that only lacks those passes.
    """
    in_force = checks(analysis, slo)
    if not in_force:
        return Judgement(Verdict.NO_DATA, (), "nothing to judge by: neither `analysis.metrics` nor `slo`")
    requests = observation.canary.window_requests
    if analysis.min_requests and not requests >= analysis.min_requests:
        seen = "an unknown number of" if math.isnan(requests) else f"{requests:g}"
        why = f"{seen} canary requests in the window, {analysis.min_requests} are needed"
        metrics = tuple(_undecided(check, Verdict.NO_DATA, observation, why) for check in in_force)
        return Judgement(Verdict.NO_DATA, metrics, why)
    metrics = tuple(_judge_metric(check, observation) for check in in_force)
    if is_baseline_idle:
        metrics = tuple(_without_baseline(metric) for metric in metrics)
    worst = min((metric.verdict for metric in metrics), key=_PRECEDENCE.index)
    reason = "; ".join(metric.reason for metric in metrics if metric.verdict is worst)
    return Judgement(worst, metrics, reason)


def _matches(endpoint: Endpoint, selector: Mapping[str, str]) -> bool:
    return all(endpoint.attribute(name) == value for name, value in selector.items())


def _request_weights(requests: Floats) -> Floats:
    is_known = np.isfinite(requests)
    return np.where(is_known, requests, 0.0) if is_known.any() else np.ones(len(requests))


def _weighted_mean(values: Floats, weights: Floats) -> float | None:
    is_known = np.isfinite(values) & (weights > 0)
    if not is_known.any():
        return None
    return float(np.average(values[is_known], weights=weights[is_known]))


def _error_ratio(errors: Floats, requests: Floats) -> float | None:
    is_known = np.isfinite(errors) & np.isfinite(requests)
    total = float(requests[is_known].sum())
    return min(1.0, float(errors[is_known].sum()) / total) if total > 0 else None


def _slo_checks(slo: Slo) -> Iterator[MetricCheck]:
    limits = {
        Signal.TTFT_P90_SECONDS.value: slo.ttft_p90_seconds,
        Signal.LATENCY_P99_SECONDS.value: slo.latency_p99_seconds,
        ERROR_RATIO: slo.error_ratio,
    }
    for signal, limit in limits.items():
        if limit is not None:
            yield MetricCheck(signal=signal, max_value=limit)


def _judge_metric(check: MetricCheck, observation: Observation) -> MetricJudgement:
    value = _figure(observation.canary, check.signal)
    baseline = _figure(observation.baseline, check.signal)
    if value is None:
        return _undecided(check, Verdict.NO_DATA, observation, f"`{check.signal}` of the canary is unknown")
    if min(value, baseline or 0.0) < 0:
        return _undecided(check, Verdict.ERROR, observation, f"`{check.signal}` is negative")
    limit, verdict, reason = _decide(
        check, value, baseline, has_baseline=observation.baseline.endpoints > 0
    )
    return MetricJudgement(
        signal=check.signal, verdict=verdict, value=value, baseline=baseline, limit=limit, reason=reason
    )


def _without_baseline(metric: MetricJudgement) -> MetricJudgement:
    is_lacking_only_the_baseline = (
        metric.value is not None and metric.value >= 0 and metric.baseline is None and metric.limit is None
    )
    if not is_lacking_only_the_baseline:
        return metric
    return replace(metric, verdict=Verdict.PASS, reason=f"{metric.reason}, as all traffic is the canary's")


def _decide(
    check: MetricCheck, value: float, baseline: float | None, *, has_baseline: bool
) -> tuple[float | None, Verdict, str]:
    """Compare with the limit in force: the larger of the thresholds, since all must be exceeded."""
    absolute = check.max_value
    if absolute is not None and value <= absolute:
        return absolute, Verdict.PASS, f"`{check.signal}` {value:.4g} is within {absolute:.4g}"
    if check.max_ratio_to_baseline is None:
        return absolute, Verdict.FAIL, f"`{check.signal}` {value:.4g} is above {absolute:.4g}"
    if baseline is None:
        verdict = Verdict.NO_DATA if has_baseline else Verdict.ERROR
        why = "is unknown" if has_baseline else "has no endpoints"
        return (
            None,
            verdict,
            f"`{check.signal}` {value:.4g} has nothing to compare with: the baseline {why}",
        )
    limit = max(check.max_ratio_to_baseline * baseline, absolute or 0.0)
    verdict = Verdict.FAIL if value > limit else Verdict.PASS
    side = "above" if verdict is Verdict.FAIL else "within"
    reason = f"`{check.signal}` {value:.4g} is {side} {limit:.4g} (baseline {baseline:.4g})"
    return limit, verdict, reason


def _undecided(
    check: MetricCheck, verdict: Verdict, observation: Observation, reason: str
) -> MetricJudgement:
    return MetricJudgement(
        signal=check.signal,
        verdict=verdict,
        value=_figure(observation.canary, check.signal),
        baseline=_figure(observation.baseline, check.signal),
        limit=None,
        reason=reason,
    )


def _figure(subset: SubsetObservation, signal: str) -> float | None:
    figure = subset.figures.get(signal, math.nan)
    return figure if math.isfinite(figure) else None
