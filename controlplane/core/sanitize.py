"""Turn untrusted samples into a clean table. The only door through which signals enter a decision."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controlplane.core.columns import MAX_RATE, Bools
from controlplane.model.signals import Drop, Floats, Readings, Sample, Signal, SignalTable
from controlplane.model.topology import EndpointId

FUTURE_TOLERANCE_SECONDS: Final = 5.0
"""A sample may be dated this far ahead: two machines' clocks under NTP. It counts as new."""

RATIO_TOLERANCE: Final = 0.05
"""A ratio may exceed 1 by this much and counts as 1: rates of two counters are extrapolated
separately. Anything above is another unit (per cent, mostly) and is dropped as absurd."""

_COUNT_LIMIT = 1e6
_LATENCY_LIMIT_SECONDS = 3600.0
_CUSTOM_LIMIT = 1e15

LIMITS: Final = MappingProxyType(
    {
        Signal.RUNNING: _COUNT_LIMIT,
        Signal.WAITING: _COUNT_LIMIT,
        Signal.KV_USAGE_RATIO: 1.0,
        Signal.TTFT_P90_SECONDS: _LATENCY_LIMIT_SECONDS,
        Signal.INTER_TOKEN_P90_SECONDS: _LATENCY_LIMIT_SECONDS,
        Signal.LATENCY_P50_SECONDS: _LATENCY_LIMIT_SECONDS,
        Signal.LATENCY_P90_SECONDS: _LATENCY_LIMIT_SECONDS,
        Signal.LATENCY_P99_SECONDS: _LATENCY_LIMIT_SECONDS,
        Signal.WINDOW_REQUESTS: MAX_RATE,
        Signal.GOOD_REQUESTS_PER_SECOND: MAX_RATE,
        Signal.REQUESTS_PER_SECOND: MAX_RATE,
        Signal.ERRORS_PER_SECOND: MAX_RATE,
        Signal.OUTPUT_TOKENS_PER_SECOND: MAX_RATE,
        Signal.CACHE_HIT_RATIO: 1.0,
        Signal.GPU_UTILIZATION_RATIO: 1.0,
        Signal.TENSOR_ACTIVE_RATIO: 1.0,
        Signal.GPU_MEMORY_RATIO: 1.0,
        Signal.GPU_FAULT: _COUNT_LIMIT,
    }
)
"""Largest plausible value of each signal, in its unit. Own signals may be anything finite up to
1e15, also negative."""

_BUILTIN = tuple(str(signal) for signal in Signal)


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The samples, transposed: one array per attribute, all of the same length."""

    rows: NDArray[np.int64]
    """Index of the endpoint, -1 if unknown."""
    signals: NDArray[np.int64]
    values: Floats
    ages: Floats


def tabulate(
    readings: Readings,
    endpoints: tuple[EndpointId, ...],
    *,
    stale_after_seconds: float,
    now: float,
) -> SignalTable:
    """Arrange readings as a table of `endpoints` by signals, dropping what cannot be believed.

    Each dropped sample becomes a `Drop` with the first reason that applies, in the order
    unknown_endpoint, nan, infinite, negative, absurd, future, stale, duplicate. Of several samples for
    one cell the newest stays (of equally new ones the smallest): the order of samples never matters.
    Cached readings age: `now` minus their `read_at_seconds` is added to every age.
    """
    samples = readings.samples
    names = (*_BUILTIN, *sorted({sample.signal for sample in samples} - set(_BUILTIN)))
    columns = _transpose(samples, endpoints, names, elapsed=max(0.0, now - readings.read_at_seconds))
    reasons = _judge(columns, names, stale_after_seconds)
    kept, duplicates = _newest(columns, np.flatnonzero(reasons == ""))
    reasons[duplicates] = "duplicate"
    values = np.full((len(endpoints), len(names)), np.nan)
    ages = np.full_like(values, np.nan)
    cells = columns.rows[kept], columns.signals[kept]
    is_ratio = np.array([LIMITS.get(name) == 1.0 for name in names], dtype=np.bool_)  # type: ignore[call-overload]
    found = columns.values[kept]
    values[cells] = np.where(is_ratio[columns.signals[kept]], np.minimum(found, 1.0), found)
    ages[cells] = np.maximum(columns.ages[kept], 0.0)
    return SignalTable(
        endpoints=endpoints,
        signals=names,
        values=values,
        age_seconds=ages,
        provenance=readings.provenance,
        drops=_drops(samples, reasons),
    )


def _transpose(
    samples: tuple[Sample, ...],
    endpoints: tuple[EndpointId, ...],
    names: tuple[str, ...],
    *,
    elapsed: float,
) -> _Columns:
    row_of = {endpoint: row for row, endpoint in enumerate(endpoints)}
    column_of = {name: column for column, name in enumerate(names)}
    count = len(samples)
    return _Columns(
        rows=np.fromiter((row_of.get(each.endpoint, -1) for each in samples), np.int64, count),
        signals=np.fromiter((column_of[each.signal] for each in samples), np.int64, count),
        values=np.array([each.value for each in samples], dtype=np.float64),
        ages=np.array([each.age_seconds for each in samples], dtype=np.float64) + elapsed,
    )


def _judge(columns: _Columns, names: tuple[str, ...], stale_after_seconds: float) -> NDArray[np.str_]:
    """Say why each sample is dropped; empty if it is not."""
    limits = np.array([_limit(name) for name in names])[columns.signals]
    is_custom = (columns.signals >= len(_BUILTIN)) if columns.signals.size else np.zeros(0, np.bool_)
    values, ages = columns.values, columns.ages
    conditions: list[Bools] = [
        columns.rows < 0,
        np.isnan(values),
        np.isinf(values),
        (values < 0) & ~is_custom,
        np.abs(values) > limits,
        ~(ages >= -FUTURE_TOLERANCE_SECONDS) & ~np.isnan(ages),
        ~(ages <= stale_after_seconds),
    ]
    names_of = ["unknown_endpoint", "nan", "infinite", "negative", "absurd", "future", "stale"]
    return np.select(conditions, names_of, default="").astype("<U16")


def _limit(name: str) -> float:
    if name not in _BUILTIN:
        return _CUSTOM_LIMIT
    limit = LIMITS[Signal(name)]
    return limit * (1.0 + RATIO_TOLERANCE) if limit == 1.0 else limit


def _newest(
    columns: _Columns, candidates: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split candidates into the one to keep of each cell, and the duplicates."""
    rows, signals = columns.rows[candidates], columns.signals[candidates]
    order = np.lexsort((columns.values[candidates], columns.ages[candidates], signals, rows))
    candidates = candidates[order]
    cell = np.stack((rows[order], signals[order]))
    is_first = np.ones(len(candidates), dtype=np.bool_)
    is_first[1:] = (cell[:, 1:] != cell[:, :-1]).any(axis=0)
    return candidates[is_first], candidates[~is_first]


def _drops(samples: tuple[Sample, ...], reasons: NDArray[np.str_]) -> tuple[Drop, ...]:
    """List what was dropped, sorted, so that the order of samples does not show."""
    dropped = (
        Drop(samples[index].endpoint, samples[index].signal, str(reasons[index]))
        for index in np.flatnonzero(reasons != "")
    )
    return tuple(sorted(dropped, key=lambda drop: (drop.endpoint, drop.signal, drop.reason)))
