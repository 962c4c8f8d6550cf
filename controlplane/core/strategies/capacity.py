"""`capacity`, the default: weigh an endpoint by the work it could do, not by how fast it answers.

Throughput over utilisation estimates what a host can carry, whatever it carries now, and settles in
one step, where weights that follow latency chase themselves (see `inverse_p99`):

    u    = max(kv_usage / kv_full, running / max_running, tensor_active / tensor_full) + κ·waiting / queue
    e    = (errors + p0·20) / (requests + 20)            p0 = the fleet's error ratio
    cap  = goodput / max(u + e, 0.05)
    lat  = clamp((fleet median L / L)^0.5, 0.5, 1.5)
    raw  = cap · lat · (1 - e)²

Where too little was finished to know the goodput, an endpoint is neutral (the median of the others),
or less if it is busier than they are: a full cache with nothing finished is a bad sign, an idle host
is no sign at all. When the whole fleet is idle there is no opinion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from annotated_types import Ge, Gt, Interval

from controlplane.core.columns import Bools, known_count, median, outcomes
from controlplane.core.strategies.base import Law, LawResult, LawView
from controlplane.model.signals import Floats, Signal
from controlplane.model.strategy import DOCUMENT_CONFIG

Full: TypeAlias = Annotated[float, Gt(0), Interval(le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityParameters:
    """The constants of the formula."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    max_running: Annotated[float, Gt(0), Interval(le=1e6)] = 256.0
    """Requests an engine runs at once when full (vLLM's `--max-num-seqs`)."""
    kv_full_ratio: Full = 0.8
    """KV cache usage that counts as full: above it, engines begin to preempt."""
    tensor_full_ratio: Full | None = None
    """Tensor core activity that counts as full, such as 0.9; unset: not looked at."""
    queue_factor: Annotated[float, Interval(ge=0, le=100)] = 0.5
    """κ: what a queue of `queue_length` adds to the utilisation."""
    queue_length: Annotated[float, Gt(0), Interval(le=1e6)] = 5.0
    """Waiting requests that make a queue."""
    min_utilization: Full = 0.05
    """Utilisation is never taken as less: an idle host is not infinitely able."""
    goodput: Literal["auto", "tokens", "requests"] = "auto"
    """Unit of throughput, one for the whole fleet. `auto`: tokens if as many endpoints know them."""
    min_tokens: Annotated[float, Interval(ge=0, le=1e9)] = 1000.0
    """Output tokens in the window before a goodput in tokens counts."""
    latency: Literal["auto", "ttft", "inter_token", "none"] = "auto"
    """Latency that corrects the capacity. `auto`: time to first token if as many endpoints know it."""
    latency_exponent: Annotated[float, Interval(ge=0, le=2)] = 0.5
    latency_min: Annotated[float, Gt(0), Interval(le=1)] = 0.5
    """Most that a slow endpoint loses."""
    latency_max: Annotated[float, Ge(1), Interval(le=10)] = 1.5
    """Most that a fast endpoint gains."""
    prior_requests: Annotated[float, Interval(ge=1, le=1e6)] = 20.0
    """Requests at the fleet's error ratio with which every endpoint is credited."""


def weigh(view: LawView, parameters: CapacityParameters) -> LawResult:
    """Weigh by estimated capacity, as in the module's formula."""
    utilization = _utilization(view, parameters)
    error_ratio = _error_ratio(view, parameters)
    goodput, is_sampled = _goodput(view, parameters)
    latency_factor = _latency_factor(view, parameters)
    load = np.maximum(utilization + error_ratio, parameters.min_utilization)
    capacity = goodput / load
    measured = np.where(is_sampled, capacity * latency_factor * (1.0 - error_ratio) ** 2, np.nan)
    neutral = _neutral(measured, np.maximum(utilization, parameters.min_utilization), parameters)
    terms = {
        "utilization": utilization,
        "error_ratio": error_ratio,
        "goodput": goodput,
        "capacity": capacity,
        "latency_factor": latency_factor,
        "neutral": neutral,
    }
    return LawResult(np.where(np.isnan(measured), neutral, measured), terms)


def _utilization(view: LawView, parameters: CapacityParameters) -> Floats:
    """The fullest of what is known, plus the queue. NaN where nothing is known."""
    fullest = np.fmax(
        view.column(Signal.KV_USAGE_RATIO) / parameters.kv_full_ratio,
        view.column(Signal.RUNNING) / parameters.max_running,
    )
    if parameters.tensor_full_ratio is not None:
        tensor = view.column(Signal.TENSOR_ACTIVE_RATIO) / parameters.tensor_full_ratio
        fullest = np.fmax(fullest, tensor)
    waiting = view.column(Signal.WAITING)
    # An unknown queue is the fleet's usual one; when nobody knows, the term says nothing of anybody.
    usual = median(waiting)
    waiting = np.where(np.isnan(waiting), 0.0 if np.isnan(usual) else usual, waiting)
    return np.asarray(fullest + parameters.queue_factor * waiting / parameters.queue_length)


def _error_ratio(view: LawView, parameters: CapacityParameters) -> Floats:
    """Error ratio shrunk towards the fleet's: few requests say little. Unknown: the fleet's."""
    counted = outcomes(view.table, view.window_seconds)
    is_known = np.isfinite(counted.errors) & np.isfinite(counted.requests)
    requests = np.where(is_known, counted.requests, 0.0)
    errors = np.where(is_known, counted.errors, 0.0)
    fleet = float(errors.sum() / requests.sum()) if requests.sum() > 0 else 0.0
    prior = parameters.prior_requests
    return np.asarray((errors + fleet * prior) / (requests + prior))


def _goodput(view: LawView, parameters: CapacityParameters) -> tuple[Floats, Bools]:
    """Throughput in one unit for the whole fleet, and where enough was finished to trust it."""
    tokens = view.column(Signal.OUTPUT_TOKENS_PER_SECOND)
    requests = view.column(Signal.GOOD_REQUESTS_PER_SECOND)
    is_in_tokens = parameters.goodput == "tokens" or (
        parameters.goodput == "auto" and 0 < known_count(tokens) >= known_count(requests)
    )
    seen = outcomes(view.table, view.window_seconds).requests
    # Failed requests are samples too: a host that fails everything is not idle.
    finished = np.fmax(np.fmax(view.column(Signal.WINDOW_REQUESTS), seen), requests * view.window_seconds)
    is_sampled = finished >= view.guards.min_samples
    if is_in_tokens:
        is_sampled |= tokens * view.window_seconds >= max(parameters.min_tokens, 1.0)
    return (tokens if is_in_tokens else requests), is_sampled


def _latency_factor(view: LawView, parameters: CapacityParameters) -> Floats:
    """How much faster than the fleet's median; 1 where that is unknown or little sampled."""
    ttft = view.column(Signal.TTFT_P90_SECONDS)
    inter_token = view.column(Signal.INTER_TOKEN_P90_SECONDS)
    choice = parameters.latency
    if choice == "auto":
        choice = "ttft" if known_count(ttft) >= known_count(inter_token) else "inter_token"
    if choice == "none":
        return np.ones_like(ttft)
    latency = ttft if choice == "ttft" else inter_token
    samples = view.column(Signal.WINDOW_REQUESTS)
    latency = np.where(samples < view.guards.min_samples, np.nan, np.maximum(latency, 1e-6))
    ratio = (median(latency) / latency) ** parameters.latency_exponent
    return np.where(np.isnan(ratio), 1.0, np.clip(ratio, parameters.latency_min, parameters.latency_max))


def _neutral(measured: Floats, load: Floats, parameters: CapacityParameters) -> Floats:
    """What an endpoint gets whose goodput is unknown: the median, less if it is busier than usual."""
    is_measured = np.isfinite(measured)
    if not is_measured.any() and not np.any(load > parameters.min_utilization):
        return np.full_like(measured, np.nan)
    usual = median(load[is_measured]) if is_measured.any() else median(load)
    middle = median(measured) if is_measured.any() else 1.0
    return np.asarray(middle * np.minimum(1.0, usual / load))


CAPACITY: Final = Law(
    name="capacity",
    summary="throughput over utilisation, corrected for latency and errors (the default)",
    parameters=CapacityParameters,
    weigh=weigh,
    signals=(
        Signal.KV_USAGE_RATIO,
        Signal.RUNNING,
        Signal.WAITING,
        Signal.TENSOR_ACTIVE_RATIO,
        Signal.GOOD_REQUESTS_PER_SECOND,
        Signal.OUTPUT_TOKENS_PER_SECOND,
        Signal.REQUESTS_PER_SECOND,
        Signal.ERRORS_PER_SECOND,
        Signal.WINDOW_REQUESTS,
        Signal.TTFT_P90_SECONDS,
        Signal.INTER_TOKEN_P90_SECONDS,
    ),
)
