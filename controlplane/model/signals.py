"""What the world reports about endpoints. Unknown is NaN, never zero.

The only module of the model that needs numpy: a table of 10,000 endpoints is two arrays, not
200,000 objects.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from controlplane.model.strategy import SignalsSpec
from controlplane.model.topology import EndpointId, ServiceName

Floats: TypeAlias = NDArray[np.float64]


class Signal(enum.StrEnum):
    """The engine-independent signals. Strategies may add their own by name (`SignalsSpec.custom`)."""

    RUNNING = "running"
    """Requests in the running batch."""
    WAITING = "waiting"
    """Requests queued in the engine."""
    KV_USAGE_RATIO = "kv_usage_ratio"
    """Share of the KV cache in use, 0 to 1."""
    TTFT_P90_SECONDS = "ttft_p90_seconds"
    INTER_TOKEN_P90_SECONDS = "inter_token_p90_seconds"
    LATENCY_P50_SECONDS = "latency_p50_seconds"
    """End-to-end request latency, as are the next two."""
    LATENCY_P90_SECONDS = "latency_p90_seconds"
    LATENCY_P99_SECONDS = "latency_p99_seconds"
    WINDOW_REQUESTS = "window_requests"
    """Requests finished inside the signal window: the sample size behind the quantiles."""
    GOOD_REQUESTS_PER_SECOND = "good_requests_per_second"
    REQUESTS_PER_SECOND = "requests_per_second"
    """All requests, as Envoy counted them (engines have no error counter)."""
    ERRORS_PER_SECOND = "errors_per_second"
    OUTPUT_TOKENS_PER_SECOND = "output_tokens_per_second"
    CACHE_HIT_RATIO = "cache_hit_ratio"
    """Prefix-cache hits over look-ups, 0 to 1."""
    GPU_UTILIZATION_RATIO = "gpu_utilization_ratio"
    TENSOR_ACTIVE_RATIO = "tensor_active_ratio"
    GPU_MEMORY_RATIO = "gpu_memory_ratio"
    GPU_FAULT = "gpu_fault"
    """Last XID error code, 0 when there was none."""


@dataclass(frozen=True, slots=True)
class SignalRequest:
    """Which signals a tick needs for one service."""

    service: ServiceName
    endpoints: tuple[EndpointId, ...]
    metrics_urls: tuple[str, ...]
    """Where direct scraping reads, one per endpoint, in order."""
    spec: SignalsSpec
    join_values: tuple[str, ...] = ()
    """For `spec.join = "label"`: the endpoint label named by `spec.join_endpoint_label`, one per
    endpoint, in order (empty where discovery does not say)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value as a source gave it: untrusted until `core.sanitize` has seen it.

    `age_seconds` is by the *sample's* own timestamp, against the source's clock at the time of the
    read (negative: dated in the future).
    """

    endpoint: EndpointId
    signal: str
    value: float
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a signal's values came from: the rendered query or the metric names."""

    signal: str
    source: str
    query: str


@dataclass(frozen=True, slots=True)
class Readings:
    """One read of one service.

    `read_at_seconds` is the reader's monotonic time; cached readings age from there.
    `unresolved` names signals for which no endpoint had a value. `unmatched_series` counts series
    whose join label names no known endpoint, `failures` are endpoints (or queries) that gave no
    answer, with why. `unmatched` shows some of those join labels' values (at most 20, sorted).
    """

    service: ServiceName
    read_at_seconds: float
    samples: tuple[Sample, ...]
    provenance: tuple[Provenance, ...] = ()
    unresolved: tuple[str, ...] = ()
    unmatched_series: int = 0
    failures: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """A sample that was not used. `reason`: nan, infinite, negative, absurd, stale, future, duplicate,
    unknown_endpoint.
    """

    endpoint: EndpointId
    signal: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class SignalTable:
    """Clean signals of one service: ``values[endpoint, signal]``, NaN where unknown.

    `age_seconds` has the same shape (NaN where unknown). Arrays are read-only.
    """

    endpoints: tuple[EndpointId, ...]
    signals: tuple[str, ...]
    values: Floats
    age_seconds: Floats
    provenance: tuple[Provenance, ...] = ()
    drops: tuple[Drop, ...] = ()

    def __post_init__(self) -> None:
        """Check shapes and freeze the arrays.

        Raises:
            ValueError: if an array's shape is not (endpoints, signals).
        """
        shape = (len(self.endpoints), len(self.signals))
        if self.values.shape != shape or self.age_seconds.shape != shape:
            msg = f"signal arrays must have shape {shape}"
            raise ValueError(msg)
        self.values.setflags(write=False)
        self.age_seconds.setflags(write=False)

    def column(self, signal: str) -> Floats:
        """Values of one signal, shape (endpoints,); all NaN if no source has the signal."""
        if signal in self.signals:
            return self.values[:, self.signals.index(signal)]
        return np.full(len(self.endpoints), np.nan)
