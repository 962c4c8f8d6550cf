"""The guards' invariants on the final vector, over random histories."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from controlplane.core.decide import decide
from controlplane.core.guards import Occasion, Pipeline, judge, quantise
from controlplane.core.guards.bounds import fit, scaled
from controlplane.core.guards.context import GuardContext
from controlplane.model.decision import ServiceInputs, Stage
from controlplane.model.signals import Floats
from controlplane.model.strategy import Guards
from controlplane.model.topology import Health
from controlplane.model.weights import WeightVector
from tests.support.core_worlds import FAST, Loop, hosts, shares, stage, strategy, topology

UNIT = 1.5e-6
"""Rounding to integers: one unit of a million, and a little."""

POSITIVE = st.floats(1e-3, 1e3)


@given(arrays(np.float64, 6, elements=st.floats(0, 1e9)), arrays(np.float64, (2, 6), elements=POSITIVE))
@settings(max_examples=200, deadline=None)
def test_fitting_keeps_bounds_sum_and_ratios(target: Floats, corners: Floats) -> None:
    low, room = 0.7 * corners[0] / corners[0].sum(), 0.6 * corners[1] / corners[1].sum()
    high = low + room
    fitted = fit(target, low, high, 1.0)
    assert fitted.sum() == pytest.approx(1.0, rel=1e-9)
    assert ((fitted >= low) & (fitted <= high)).all()
    free = (fitted > low * 1.0001) & (fitted < high * 0.9999) & (target > target.max() * 1e-6)
    factors = fitted[free] / (target[free] / target.max(initial=0.0))
    assert factors == pytest.approx(np.full(len(factors), factors[0] if len(factors) else 1.0), rel=1e-6)


def test_fitting_what_fits_changes_nothing_bit_for_bit() -> None:
    target = scaled(np.array([0.1, 0.7, 0.3]), 1.0)
    assert fit(target, np.zeros(3), np.ones(3), 1.0) is target


def test_fitting_refuses_bounds_that_cannot_hold() -> None:
    with pytest.raises(ValueError, match="no shares"):
        fit(np.ones(2), np.zeros(2), np.full(2, 0.4), 1.0)


GUARDS = st.fixed_dictionaries(
    {
        "step_down_ratio": st.floats(0.01, 1),
        "step_up_ratio": st.floats(0.01, 3),
        "clip_min_ratio": st.floats(0.05, 1),
        "clip_max_ratio": st.floats(1, 20),
        "floor_ratio": st.floats(0.05, 0.9),
        "tau_down_seconds": st.floats(0, 100),
        "tau_up_seconds": st.floats(0, 100),
        "dead_band_ratio": st.sampled_from([0.0, 0.1]),
        "slow_start_seconds": st.just(0),
    },
)


@given(GUARDS, st.data())
@settings(max_examples=60, deadline=None)
def test_floor_clip_and_step_hold_on_the_final_vector(guards: dict[str, Any], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    loop = Loop(strategy(guards=guards), topology(count))
    history = data.draw(arrays(np.float64, (6, count), elements=st.floats(0, 1e5) | st.just(math.nan)))
    before = np.full(count, 1 / count)
    for tokens in history:
        decision = loop.tick(hosts(loop.topology.ids, output_tokens_per_second=tokens))
        final = shares(decision)
        assert final.min() >= guards["floor_ratio"] / count - UNIT
        assert final.min() >= guards["clip_min_ratio"] / count - UNIT
        assert final.max() <= max(guards["clip_max_ratio"], guards["floor_ratio"]) / count + UNIT
        merit = stage(decision, "step")
        is_waived = any("waived" in note for each in decision.stages for note in each.notes)
        assert not is_waived or before.min() < guards["floor_ratio"] / count
        if before.min() >= max(guards["floor_ratio"], guards["clip_min_ratio"]) / count - 1e-12:
            assert (merit >= before * (1 - guards["step_down_ratio"]) - 1e-12).all()
            assert (merit <= before * (1 + guards["step_up_ratio"]) + 1e-12).all()
        if guards["dead_band_ratio"] == 0:
            assert final == pytest.approx(merit, abs=UNIT)
        before = merit


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_floor_holds_through_emergencies_newcomers_and_departures(data: st.DataObject) -> None:
    loop = Loop(strategy(), topology(6))
    for _ in range(5):
        start, count = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 6))
        health = data.draw(st.dictionaries(st.integers(start, start + 8), st.sampled_from(Health)))
        loop.topology = topology(count, health, start)
        errors = data.draw(arrays(np.float64, count, elements=st.sampled_from([0.0, 5.0])))
        tokens = data.draw(arrays(np.float64, count, elements=st.floats(0, 1e5)))
        decision = loop.tick(
            hosts(loop.topology.ids, output_tokens_per_second=tokens, errors_per_second=errors)
        )
        assert decision.weights.endpoints == loop.topology.ids
        assert shares(decision).min() >= 0.1 / count - UNIT
        assert sum(decision.weights.weights) == 1_000_000


def test_an_early_decision_uses_only_its_part_of_the_step() -> None:
    loop = Loop(strategy(guards={**FAST, "step_down_ratio": 0.2, "step_up_ratio": 0.1}), topology(10))
    start = loop.ticks(3, hosts(loop.topology.ids))
    falling = hosts(loop.topology.ids, output_tokens_per_second=[5, *[500] * 9])
    first = loop.tick(falling, after=5.0)
    assert shares(first)[0] == pytest.approx(shares(start)[0] * 0.8, rel=1e-3)
    for _ in range(5):
        decision = loop.tick(falling, after=1.0)
    assert shares(decision)[0] == pytest.approx(shares(first)[0] * 0.96**5, rel=1e-3)


def test_a_decision_without_a_new_sample_leaves_the_step_to_the_next_one() -> None:
    """Ticks also come between samples; one just before a sample must not use its step up."""
    loop = Loop(strategy(guards={**FAST, "step_down_ratio": 0.2, "step_up_ratio": 0.1}), topology(10))
    steady = hosts(loop.topology.ids)
    start = loop.ticks(3, steady)
    loop.tick(replace(steady, age_seconds=steady.age_seconds + 4.9), after=4.9)
    falling = hosts(loop.topology.ids, output_tokens_per_second=[5, *[500] * 9])
    decision = loop.tick(falling, after=0.1)
    assert shares(decision)[0] == pytest.approx(shares(start)[0] * 0.8, rel=1e-3)


def test_a_sample_never_counts_twice() -> None:
    once, thrice = (Loop(strategy(guards={"slow_start_seconds": 0}), topology(4)) for _ in range(2))
    for loop in (once, thrice):
        loop.ticks(3, hosts(loop.topology.ids))
    tokens = [450, 500, 500, 500]
    once.tick(hosts(once.topology.ids, output_tokens_per_second=tokens))
    for extra in range(3):
        loop = thrice
        signals = hosts(loop.topology.ids, output_tokens_per_second=tokens)
        signals.age_seconds.setflags(write=True)
        signals.age_seconds[:] += 5.0 * extra
        loop.tick(signals)
    assert once.memory.smoothed == pytest.approx(dict(thrice.memory.smoothed), rel=1e-9)
    smooth = next(each for each in thrice.decisions[-1].stages if each.name == "smooth")
    assert smooth.notes == ("no new samples",)


def test_newcomers_start_slowly_and_disturb_nobody_beyond_the_refill() -> None:
    loop = Loop(strategy(), topology(9))
    before = loop.ticks(100, hosts(loop.topology.ids, output_tokens_per_second=np.linspace(400, 600, 9)))
    loop.topology = topology(10)
    tokens = [*np.linspace(400, 600, 9), 500]
    after = loop.tick(hosts(loop.topology.ids, output_tokens_per_second=tokens))
    assert after.publish_reason == "membership"
    assert after.states[loop.topology.ids[9]] == "warming"
    assert shares(after)[9] == pytest.approx(0.1 * np.median(shares(after)[:9]), rel=0.02)
    refill = shares(after)[:9] / shares(before)
    assert refill == pytest.approx(np.full(9, refill[0]), rel=5e-3)
    grown = loop.ticks(20, hosts(loop.topology.ids, output_tokens_per_second=tokens))
    assert shares(grown)[9] == pytest.approx(np.median(shares(grown)[:9]), rel=0.1)


def test_departures_leave_the_others_in_proportion() -> None:
    loop = Loop(strategy(guards={"dead_band_ratio": 0}), topology(10))
    tokens = np.linspace(300, 700, 10)
    before = loop.ticks(100, hosts(loop.topology.ids, output_tokens_per_second=tokens))
    loop.topology = topology(7, start=3)
    after = loop.tick(hosts(loop.topology.ids, output_tokens_per_second=tokens[3:]))
    assert after.is_published
    ratio = shares(after) / shares(before)[3:]
    assert ratio == pytest.approx(np.full(7, ratio[0]), rel=0.02)
    assert set(after.memory.smoothed) == set(loop.topology.ids)


@pytest.mark.parametrize(("code", "is_emergency"), [(0, False), (31, False), (79, True), (48, True)])
def test_only_a_broken_gpu_is_an_emergency(code: float, is_emergency: bool) -> None:  # noqa: FBT001 - a case
    loop = Loop(strategy(), topology(4))
    loop.ticks(3, hosts(loop.topology.ids))
    decision = loop.tick(hosts(loop.topology.ids, gpu_fault=[code, 0, 0, 0]))
    assert (decision.states[loop.topology.ids[0]] == "emergency") is is_emergency
    assert (decision.weights.weights[0] == 25_000) is is_emergency


def test_a_penalty_lasts_one_window_and_then_the_endpoint_comes_back_slowly() -> None:
    loop = Loop(strategy(), topology(4))
    loop.ticks(3, hosts(loop.topology.ids))
    loop.tick(hosts(loop.topology.ids, errors_per_second=[5, 0, 0, 0]))
    good = hosts(loop.topology.ids)
    while loop.tick(good).states[loop.topology.ids[0]] == "emergency":
        assert loop.decisions[-1].weights.weights[0] == 25_000
    assert loop.now == 1000 + 3 * 5 + 60
    assert shares(loop.decisions[-1])[0] <= 0.025 * 1.1 + UNIT
    assert shares(loop.ticks(80, good))[0] == pytest.approx(0.25, rel=0.1)


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1e12)))
@settings(max_examples=150)
def test_quantising_keeps_the_total_and_is_within_one_unit(raw: Floats) -> None:
    exact = scaled(raw, 1.0)
    vector = quantise(topology(len(raw)).ids, exact)
    assert sum(vector.weights) == 1_000_000
    assert min(vector.weights) >= 1
    lifted = (exact * 1_000_000 < 1).sum()
    error = np.abs(np.array(vector.weights) - np.maximum(exact * 1_000_000, 1))
    assert error.max() <= 1 + lifted


def test_quantising_hides_the_last_bits() -> None:
    ids = topology(3).ids
    third = np.array([1 / 3, 1 / 3, 1 / 3])
    noisy = third * np.array([1 - 1e-15, 1 + 1e-15, 1.0])
    assert quantise(ids, third) == quantise(ids, noisy)
    assert quantise(ids, third).weights == (333_334, 333_333, 333_333)


def test_one_bad_host_in_a_large_fleet_is_published() -> None:
    # It never moves 1.5 % of the traffic; its own share is what counts.
    loop = Loop(strategy(), topology(200))
    loop.ticks(40, hosts(loop.topology.ids))
    count = len(loop.published)
    loop.ticks(40, hosts(loop.topology.ids, output_tokens_per_second=[25, *[500] * 199]))
    assert len(loop.published) - count >= 5
    assert loop.decisions[-1].weights.weights[0] < 1000


def test_occasions_in_order_of_precedence() -> None:
    old = WeightVector(("a", "b"), (500, 500))
    new = WeightVector(("a", "b"), (501, 499))
    other = WeightVector(("a", "c"), (500, 500))
    soon = 1.0

    def reason(proposed: WeightVector, **occasion: bool) -> str:
        return judge(old, proposed, Occasion(seconds_since_published=soon, **occasion), Guards()).reason

    assert reason(old, is_emergency_new=True, is_strategy_new=True) == "hysteresis"
    assert reason(old, is_frozen=True) == "hold"
    assert reason(new) == "hysteresis"
    assert reason(new, is_holding=True) == "hold"
    assert reason(new, is_emergency_new=True) == "emergency"
    assert reason(new, is_strategy_new=True) == "strategy"
    assert reason(new, is_frozen=True) == "freeze"
    assert reason(new, is_exact=True) == "interval"
    assert reason(other, is_frozen=True) == "membership"


def test_another_guard_joins_at_the_end() -> None:
    def halfway(context: GuardContext, values: Floats) -> Stage:
        published = context.published
        return Stage("budget", values if published is None else (values + published) / 2)

    loop = Loop(strategy(guards=FAST), topology(2))
    loop.tick(hosts(loop.topology.ids))
    inputs = ServiceInputs(
        strategy=loop.strategy,
        strategy_hash="h",
        topology=loop.topology,
        table=hosts(loop.topology.ids, output_tokens_per_second=[100, 300]),
    )
    decision = decide(inputs, loop.memory, loop.now + 5, pipeline=Pipeline().then(halfway))
    assert [each.name for each in decision.stages][-2:] == ["budget", "quantise"]
    assert shares(decision)[0] == pytest.approx((0.25 + 0.5) / 2, abs=0.01)
