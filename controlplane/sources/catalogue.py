"""Which metrics say what, by engine. Data: the only module that knows engines' metric names.

Alternatives are listed newest first. Names come from the engines' own documentation (vLLM 0.4 to
0.11, SGLang 0.4 and 0.5, TGI 2 and 3, Triton with the TensorRT-LLM backend, DCGM exporter 3 and 4) and
from Envoy 1.40's ``/stats/prometheus``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from controlplane.model.signals import Signal
from controlplane.model.strategy import Engine
from controlplane.sources.measures import (
    Difference,
    Entry,
    Gauge,
    Group,
    Increase,
    Matcher,
    Measure,
    Merge,
    Quantile,
    Rate,
    Ratio,
    Series,
    Sum,
)

ENVOY_ENDPOINT_LABEL = "envoy_endpoint_address"
"""Label of Envoy's per-endpoint series: ``ip:port``, ``[ip]:port`` for IPv6."""

_MILLISECONDS = 1e-3
_MICROSECONDS = 1e-6
_PERCENT = 1e-2


def _gauge(
    metric: str,
    merge: Merge = "sum",
    *,
    scale: float = 1.0,
    shards: tuple[str, ...] = (),
    **labels: str,
) -> Measure:
    return Measure(Gauge(Series(metric, _equal(labels), merge, shards)), scale)


def _rate(metric: str, merge: Merge = "sum", *, unless: tuple[Matcher, ...] = ()) -> Measure:
    return Measure(Rate(Series(metric, unless, merge)))


def _increase(metric: str, merge: Merge = "sum") -> Measure:
    return Measure(Increase(Series(metric, (), merge)))


def _hit_ratio(hits: str, queries: str) -> Measure:
    return Measure(Ratio(Rate(Series(hits)), Rate(Series(queries))))


def _equal(labels: Mapping[str, str]) -> tuple[Matcher, ...]:
    return tuple(Matcher(label, value) for label, value in sorted(labels.items()))


def _entry(signal: Signal, *measures: Measure, group: Group = "engine") -> Entry:
    return Entry(signal.value, group, measures)


def _quantiles(signal: Signal, quantile: float, *metrics: str, scale: float = 1.0) -> Entry:
    return _entry(signal, *(Measure(Quantile(Series(name), quantile), scale) for name in metrics))


def _latencies(metric: str) -> tuple[Entry, ...]:
    return (
        _quantiles(Signal.LATENCY_P50_SECONDS, 0.5, metric),
        _quantiles(Signal.LATENCY_P90_SECONDS, 0.9, metric),
        _quantiles(Signal.LATENCY_P99_SECONDS, 0.99, metric),
        _entry(Signal.WINDOW_REQUESTS, _increase(f"{metric}_count")),
    )


_NOT_GOOD = (
    Matcher("finished_reason", "abort", is_equal=False),
    Matcher("finished_reason", "error", is_equal=False),
)
"""vLLM counts every finished request as a success; these reasons are none."""

_VLLM = (
    _entry(Signal.RUNNING, _gauge("vllm:num_requests_running")),
    _entry(Signal.WAITING, _gauge("vllm:num_requests_waiting")),
    _entry(
        Signal.KV_USAGE_RATIO,
        _gauge("vllm:kv_cache_usage_perc", "max"),
        _gauge("vllm:gpu_cache_usage_perc", "max"),
    ),
    _quantiles(Signal.TTFT_P90_SECONDS, 0.9, "vllm:time_to_first_token_seconds"),
    _quantiles(
        Signal.INTER_TOKEN_P90_SECONDS,
        0.9,
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
    *_latencies("vllm:e2e_request_latency_seconds"),
    _entry(Signal.GOOD_REQUESTS_PER_SECOND, _rate("vllm:request_success_total", unless=_NOT_GOOD)),
    _entry(Signal.OUTPUT_TOKENS_PER_SECOND, _rate("vllm:generation_tokens_total")),
    _entry(
        Signal.CACHE_HIT_RATIO,
        _hit_ratio("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
        _hit_ratio("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total"),
        _gauge("vllm:gpu_prefix_cache_hit_rate", "max"),
    ),
)

_DP_RANK = ("dp_rank",)
"""SGLang repeats its gauges for every tensor and pipeline rank; only data-parallel ranks differ."""

_SGLANG = (
    _entry(Signal.RUNNING, _gauge("sglang:num_running_reqs", shards=_DP_RANK)),
    _entry(Signal.WAITING, _gauge("sglang:num_queue_reqs", shards=_DP_RANK)),
    _entry(Signal.KV_USAGE_RATIO, _gauge("sglang:token_usage", "max")),
    _quantiles(Signal.TTFT_P90_SECONDS, 0.9, "sglang:time_to_first_token_seconds"),
    _quantiles(
        Signal.INTER_TOKEN_P90_SECONDS,
        0.9,
        "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
    ),
    *_latencies("sglang:e2e_request_latency_seconds"),
    _entry(
        Signal.GOOD_REQUESTS_PER_SECOND,
        Measure(
            Difference(
                Rate(Series("sglang:num_requests_total")),
                Rate(Series("sglang:num_aborted_requests_total")),
            )
        ),
    ),
    _entry(Signal.OUTPUT_TOKENS_PER_SECOND, _rate("sglang:generation_tokens_total")),
    _entry(Signal.CACHE_HIT_RATIO, _gauge("sglang:cache_hit_rate", "max")),
)

_TGI = (
    _entry(Signal.RUNNING, _gauge("tgi_batch_current_size")),
    _entry(Signal.WAITING, _gauge("tgi_queue_size")),
    _quantiles(Signal.INTER_TOKEN_P90_SECONDS, 0.9, "tgi_request_mean_time_per_token_duration"),
    *_latencies("tgi_request_duration"),
    _entry(Signal.GOOD_REQUESTS_PER_SECOND, _rate("tgi_request_success")),
    _entry(Signal.REQUESTS_PER_SECOND, _rate("tgi_request_count")),
    _entry(Signal.ERRORS_PER_SECOND, _rate("tgi_request_failure")),
    # A histogram of tokens per request: its sum counts the tokens.
    _entry(Signal.OUTPUT_TOKENS_PER_SECOND, _rate("tgi_request_generated_tokens_sum")),
)


def _summary(quantile: str) -> Measure:
    """Triton's optional latency summary (``--metrics-config summary_latencies=true``)."""
    return _gauge("nv_inference_request_summary_us", "max", scale=_MICROSECONDS, quantile=quantile)


# Triton counts a request once for the ensemble and once for each model in it, so models are
# joined by the largest and not by the sum.
_TRITON = (
    _entry(Signal.RUNNING, _gauge("nv_trt_llm_request_metrics", request_type="scheduled")),
    _entry(
        Signal.WAITING,
        _gauge("nv_trt_llm_request_metrics", request_type="waiting"),
        _gauge("nv_inference_pending_request_count", "max"),
    ),
    _entry(
        Signal.KV_USAGE_RATIO,
        _gauge("nv_trt_llm_kv_cache_block_metrics", "max", kv_cache_block_type="fraction"),
    ),
    _quantiles(
        Signal.TTFT_P90_SECONDS, 0.9, "nv_inference_first_response_histogram_ms", scale=_MILLISECONDS
    ),
    # Without the summary only a mean can be had: it stands in for the median, never for a tail.
    _entry(
        Signal.LATENCY_P50_SECONDS,
        _summary("0.5"),
        Measure(
            Ratio(
                Rate(Series("nv_inference_request_duration_us", merge="max")),
                Rate(Series("nv_inference_request_success", merge="max")),
            ),
            _MICROSECONDS,
        ),
    ),
    _entry(Signal.LATENCY_P90_SECONDS, _summary("0.9")),
    _entry(Signal.LATENCY_P99_SECONDS, _summary("0.99")),
    _entry(Signal.WINDOW_REQUESTS, _increase("nv_inference_request_success", "max")),
    _entry(Signal.GOOD_REQUESTS_PER_SECOND, _rate("nv_inference_request_success", "max")),
    _entry(
        Signal.REQUESTS_PER_SECOND,
        Measure(
            Sum(
                (
                    Rate(Series("nv_inference_request_success", merge="max")),
                    Rate(Series("nv_inference_request_failure", merge="max")),
                )
            )
        ),
    ),
    _entry(Signal.ERRORS_PER_SECOND, _rate("nv_inference_request_failure", "max")),
    _entry(Signal.GPU_UTILIZATION_RATIO, _gauge("nv_gpu_utilization", "max")),
    _entry(
        Signal.GPU_MEMORY_RATIO,
        Measure(
            Ratio(
                Gauge(Series("nv_gpu_memory_used_bytes")),
                Gauge(Series("nv_gpu_memory_total_bytes")),
            )
        ),
    ),
)

_ENVOY_SUCCESS = Rate(Series("envoy_cluster_endpoint_rq_success"))
_ENVOY_ERROR = Rate(Series("envoy_cluster_endpoint_rq_error"))

_ENVOY = (
    # Not `rq_total`: Envoy leaves out requests that found no connection there, while `rq_error` has
    # them, so an endpoint that refuses connections would show errors and no requests.
    _entry(Signal.REQUESTS_PER_SECOND, Measure(Sum((_ENVOY_SUCCESS, _ENVOY_ERROR))), group="envoy"),
    _entry(Signal.ERRORS_PER_SECOND, Measure(_ENVOY_ERROR), group="envoy"),
)

_DCGM = (
    _entry(
        Signal.GPU_UTILIZATION_RATIO, _gauge("DCGM_FI_DEV_GPU_UTIL", "max", scale=_PERCENT), group="dcgm"
    ),
    _entry(Signal.TENSOR_ACTIVE_RATIO, _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "max"), group="dcgm"),
    _entry(
        Signal.GPU_MEMORY_RATIO,
        Measure(
            Ratio(
                Gauge(Series("DCGM_FI_DEV_FB_USED")),
                Sum((Gauge(Series("DCGM_FI_DEV_FB_USED")), Gauge(Series("DCGM_FI_DEV_FB_FREE")))),
            )
        ),
        group="dcgm",
    ),
    _entry(Signal.GPU_FAULT, _gauge("DCGM_FI_DEV_XID_ERRORS", "max"), group="dcgm"),
)

_BY_ENGINE: Mapping[Engine, tuple[Entry, ...]] = MappingProxyType(
    {
        "vllm": (*_ENVOY, *_VLLM, *_DCGM),
        "sglang": (*_ENVOY, *_SGLANG, *_DCGM),
        "tgi": (*_ENVOY, *_TGI, *_DCGM),
        "triton": (*_ENVOY, *_TRITON, *_DCGM),
    }
)


def entries(engine: Engine) -> tuple[Entry, ...]:
    """List every way to read a signal of `engine`, in order of preference.

    A signal may occur in two groups (Envoy's request counts, else the engine's own): for each
    endpoint the first entry that has a value wins.
    """
    return _BY_ENGINE[engine]


def signals(engine: Engine) -> tuple[str, ...]:
    """List the signals an engine can have, each once, in catalogue order."""
    return tuple(dict.fromkeys(entry.signal for entry in entries(engine)))


def is_optional(engine: Engine, signal: str) -> bool:
    """Tell whether a signal comes from beside the engine (Envoy, DCGM) and may rightly be absent."""
    return all(entry.group != "engine" for entry in entries(engine) if entry.signal == signal)
