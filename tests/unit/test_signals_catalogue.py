"""The catalogue: complete, well-formed, and the same for both readers."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from controlplane.model.signals import Signal
from controlplane.model.strategy import Engine
from controlplane.sources import catalogue
from controlplane.sources.measures import Quantile, leaves, metric_names

ENGINES: tuple[Engine, ...] = get_args(Engine)
NOT_OFFERED = {
    "vllm": set(),
    "sglang": set(),
    "tgi": {Signal.KV_USAGE_RATIO, Signal.TTFT_P90_SECONDS, Signal.CACHE_HIT_RATIO},
    "triton": {
        Signal.INTER_TOKEN_P90_SECONDS,
        Signal.OUTPUT_TOKENS_PER_SECOND,
        Signal.CACHE_HIT_RATIO,
    },
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_signal_is_in_the_catalogue_unless_the_engine_has_no_such_metric(engine: Engine) -> None:
    missing = set(Signal) - set(catalogue.signals(engine))
    assert missing == NOT_OFFERED[engine]


@pytest.mark.parametrize("engine", ENGINES)
def test_names_and_quantiles_are_well_formed(engine: Engine) -> None:
    for entry in catalogue.entries(engine):
        assert entry.measures
        for measure in entry.measures:
            assert 0 < measure.scale <= 1
            for name in metric_names(measure.expression):
                assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name)
            for leaf in leaves(measure.expression):
                if isinstance(leaf, Quantile):
                    assert 0 < leaf.quantile < 1
                    assert not leaf.series.metric.endswith("_bucket")


@pytest.mark.parametrize("engine", ENGINES)
def test_only_signals_from_beside_the_engine_are_optional(engine: Engine) -> None:
    assert not catalogue.is_optional(engine, Signal.RUNNING)
    assert catalogue.is_optional(engine, Signal.GPU_FAULT)
    own_counters = engine in {"tgi", "triton"}
    assert catalogue.is_optional(engine, Signal.ERRORS_PER_SECOND) is not own_counters


def test_newer_names_come_before_the_ones_they_replaced() -> None:
    found = {entry.signal: entry for entry in catalogue.entries("vllm")}
    usage = [metric_names(measure.expression) for measure in found[Signal.KV_USAGE_RATIO].measures]
    assert usage == [("vllm:kv_cache_usage_perc",), ("vllm:gpu_cache_usage_perc",)]
