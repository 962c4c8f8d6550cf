"""Whole decisions: the first one, empty services, freezing, memory through JSON, explanations."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.decide import decide
from controlplane.core.explain import explain
from controlplane.core.strategies import Registry
from controlplane.model.decision import ServiceInputs, ServiceMemory
from controlplane.model.signals import Drop, Provenance, SignalTable
from controlplane.model.topology import Health
from tests.support.core_worlds import FAST, Loop, hosts, shares, strategy, table, through_json, topology


def test_the_first_decision_without_data_is_equal_and_published() -> None:
    decision = Loop(strategy(), topology(4)).tick()
    assert decision.publish_reason == "first"
    assert set(decision.weights.weights) == {250_000}
    assert set(decision.states.values()) == {"no data"}


def test_a_service_without_endpoints_has_an_empty_vector() -> None:
    loop = Loop(strategy(), topology(0))
    assert loop.tick().weights.weights == ()
    assert not loop.tick().is_published
    loop.topology = topology(3)
    assert loop.tick().publish_reason == "membership"
    loop.topology = topology(0)
    assert loop.tick().weights.weights == ()


def test_draining_and_unhealthy_endpoints_keep_a_weight() -> None:
    loop = Loop(strategy(), topology(6, {0: Health.DRAINING, 1: Health.UNHEALTHY}))
    decision = loop.ticks(3, hosts(loop.topology.ids))
    assert min(decision.weights.weights) > 100_000
    assert list(decision.states.values())[:3] == ["draining", "unhealthy", "ok"]


def test_signals_of_other_endpoints_than_the_topology_s_are_lined_up() -> None:
    loop = Loop(strategy(guards=FAST), topology(5, start=1))
    tokens = np.linspace(100, 900, 5)
    decision = loop.ticks(3, hosts(topology(5).ids, output_tokens_per_second=tokens))
    assert decision.inputs.table.endpoints == loop.topology.ids
    assert decision.states[loop.topology.ids[4]] == "no data"
    assert (np.diff(shares(decision)[:4]) > 0).all()


def test_hold_keeps_weights_whatever_happens_and_newcomers_get_the_median() -> None:
    loop = Loop(strategy(guards=FAST), topology(3))
    before = loop.ticks(5, hosts(loop.topology.ids, output_tokens_per_second=[100, 200, 300]))
    loop.freeze = "hold"
    held = loop.tick(hosts(loop.topology.ids, errors_per_second=[5, 0, 0]))
    assert held.weights == before.weights
    assert (held.is_published, held.publish_reason) == (False, "hold")
    assert set(held.states.values()) == {"held"}
    loop.topology = topology(4)
    joined = loop.tick(hosts(loop.topology.ids))
    assert joined.is_published
    assert joined.weights.weights[3] == pytest.approx(np.median(joined.weights.weights[:3]), abs=2)


def test_equal_freeze_is_published_at_once_and_thawing_starts_from_it() -> None:
    loop = Loop(strategy(), topology(4))
    signals = hosts(loop.topology.ids, output_tokens_per_second=[100, 200, 300, 400])
    loop.ticks(60, signals)
    loop.freeze = "equal"
    assert loop.tick(signals).publish_reason == "freeze"
    assert set(loop.ticks(20, signals).weights.weights) == {250_000}
    loop.freeze = ""
    thawed = loop.tick(signals)
    assert shares(thawed).min() >= 0.8 / 4 - 2e-6
    assert shares(thawed).max() <= 1.1 / 4 + 2e-6


def test_a_new_strategy_is_published_at_once_if_it_changes_anything() -> None:
    loop = Loop(strategy(law="equal"), topology(4))
    loop.ticks(3)
    loop.strategy = strategy(version="1.0.1", law="equal")
    assert not loop.tick(after=0.1).is_published
    loop.strategy = strategy(
        version="2.0.0", law="static", parameters={"weights": {loop.topology.ids[0]: 3}, "default": 1}
    )
    assert loop.tick(after=2.5).publish_reason == "strategy"


def test_static_weights_arrive_exactly_without_signals() -> None:
    loop = Loop(strategy(law="static", parameters={"default": 100}), topology(4))
    loop.ticks(2)
    weights = {endpoint: 100 + row for row, endpoint in enumerate(loop.topology.ids)}
    loop.strategy = strategy(version="1.0.1", law="static", parameters={"weights": weights})
    decision = loop.ticks(40)
    assert shares(decision) == pytest.approx(np.array([100, 101, 102, 103]) / 406, abs=1e-6)
    assert decision.weights == decision.proposed
    assert not decision.warnings


@given(st.lists(st.lists(st.floats(1, 1e4), min_size=4, max_size=4), min_size=2, max_size=6))
@settings(max_examples=25, deadline=None)
def test_memory_through_json_changes_nothing(history: list[list[float]]) -> None:
    kept, restored = Loop(strategy(), topology(4)), Loop(strategy(), topology(4))
    for turn, tokens in enumerate(history):
        signals = hosts(kept.topology.ids, output_tokens_per_second=tokens) if turn % 3 != 2 else None
        errors = hosts(kept.topology.ids, errors_per_second=[5, 0, 0, 0]) if turn == 3 else signals
        restored.memory = through_json(restored.memory)
        assert kept.tick(errors).proposed == restored.tick(errors).proposed
        assert through_json(kept.memory) == kept.memory


def test_a_checkpoint_with_nothing_but_published_weights_is_continued() -> None:
    loop = Loop(strategy(), topology(4))
    last = loop.ticks(60, hosts(loop.topology.ids, output_tokens_per_second=[100, 200, 300, 400]))
    restarted = Loop(strategy(), topology(4), now=loop.now + 5)
    restarted.memory = ServiceMemory(published=last.weights, published_at=loop.now)
    decision = restarted.tick()
    assert decision.weights == last.weights
    assert not decision.is_published


@pytest.mark.fault("R37")
def test_an_unknown_law_is_an_error_for_the_caller() -> None:
    inputs = ServiceInputs(
        strategy=strategy(), strategy_hash="h", topology=topology(1), table=hosts(topology(1).ids)
    )
    with pytest.raises(ValueError, match="no law `capacity`"):
        decide(inputs, ServiceMemory(), 0.0, registry=Registry())
    broken = replace(inputs, strategy=replace(strategy(), parameters={"max_running": -1}))
    with pytest.raises(ValueError, match=r"parameters\.max_running"):
        decide(broken, ServiceMemory(), 0.0)


def test_deciding_changes_no_input() -> None:
    loop = Loop(strategy(), topology(4))
    signals = hosts(loop.topology.ids, output_tokens_per_second=[100, 200, 300, 400])
    before = signals.values.copy()
    loop.ticks(5, signals)
    assert (signals.values == before).all()
    for each in loop.decisions[-1].stages:
        assert not each.values.flags.writeable


def test_warnings_of_table_size_and_health() -> None:
    loop = Loop(strategy(maglev={"table_size": 251}), topology(10))
    assert any("table_size" in warning for warning in loop.tick(hosts(loop.topology.ids)).warnings)
    loop.strategy = strategy()
    assert not any("table_size" in warning for warning in loop.tick(hosts(loop.topology.ids)).warnings)


def test_an_explanation_goes_from_sample_to_weight() -> None:
    loop = Loop(strategy(), topology(4))
    ids = loop.topology.ids
    loop.ticks(3, hosts(ids))
    clean = hosts(ids, output_tokens_per_second=[20, 500, 500, 500])
    signals = SignalTable(
        ids,
        clean.signals,
        clean.values,
        clean.age_seconds,
        provenance=(Provenance("output_tokens_per_second", "prometheus", "rate(vllm:x[60s])"),),
        drops=(Drop(ids[0], "gpu_utilization_ratio", "absurd"), Drop(ids[1], "waiting", "stale")),
    )
    decision = loop.tick(signals)
    explanation = explain(decision, ids[0])
    assert explanation is not None
    tokens = next(each for each in explanation.signals if each.signal == "output_tokens_per_second")
    assert (tokens.value, tokens.age_seconds, tokens.source) == (20.0, 1.0, "prometheus")
    assert tokens.query == "rate(vllm:x[60s])"
    names = [each.name for each in explanation.stages]
    assert names[0] == "law:capacity"
    assert names[-1] == "quantise"
    assert {term.name for term in explanation.stages[0].terms} >= {"utilization", "capacity"}
    limited = next(each for each in explanation.stages if each.name == "step")
    assert limited.reason == "limited to -20%"
    for earlier, later in pairwise(explanation.stages):
        assert later.before == earlier.after
    assert explanation.proposed_weight == decision.proposed.weights[0]
    json.dumps(asdict(explanation), allow_nan=False)


def test_an_explanation_of_missing_data_has_no_nan() -> None:
    loop = Loop(strategy(), topology(3))
    known = np.array([100.0, 100.0, np.nan])
    columns = {"running": known, "output_tokens_per_second": known}
    decision = loop.tick(table(loop.topology.ids, columns))
    explanation = explain(decision, loop.topology.ids[2])
    assert explanation is not None
    assert explanation.stages[0].after is None
    assert "median of 2" in explanation.stages[1].reason
    json.dumps(asdict(explanation), allow_nan=False)
    assert explain(decision, "10.9.9.9:1") is None
