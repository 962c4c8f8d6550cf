"""What must hold of weights, item by item, and the rows of the fault table that concern the engine."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from controlplane.core.decide import decide
from controlplane.core.guards import moved_share
from controlplane.core.sanitize import tabulate
from controlplane.model.decision import ServiceInputs, ServiceMemory
from controlplane.model.signals import Readings, Sample, Signal
from controlplane.model.topology import Health
from tests.support.core_worlds import FAST, Loop, hosts, shares, stage, strategy, table, topology

NAN = math.nan


@pytest.mark.fault("R31")
@given(st.permutations(range(40)))
@settings(max_examples=25)
def test_1_replicas_with_equal_input_in_any_order_emit_equal_weights(order: list[int]) -> None:
    ids = topology(8).ids
    samples = [
        Sample(ids[row % 8], name, float(1 + row % 7), 1.0 + row % 3)
        for row, name in zip(
            range(40), ["running", "ttft_p90_seconds", "window_requests"] * 14, strict=False
        )
    ]

    def weigh(samples: list[Sample]) -> tuple[object, object]:
        readings = Readings("chat", 99.0, tuple(samples))
        signals = tabulate(readings, ids, stale_after_seconds=60, now=100.0)
        inputs = ServiceInputs(strategy=strategy(), strategy_hash="h", topology=topology(8), table=signals)
        decision = decide(inputs, ServiceMemory(), 100.0)
        return decision.weights, decision.memory

    assert weigh(samples) == weigh([samples[index] for index in order])


def test_2_unchanged_weights_are_not_published_again() -> None:
    loop = Loop(strategy(guards={**FAST, "hysteresis_ratio": 0}), topology(10))
    signals = hosts(loop.topology.ids, output_tokens_per_second=np.linspace(300, 900, 10))
    loop.ticks(10, signals)
    assert [decision.publish_reason for decision in loop.published] == ["first"]
    assert loop.decisions[-1].publish_reason == "hysteresis"


@pytest.mark.fault("R9")
def test_3_an_oscillating_signal_is_published_at_most_once_per_interval() -> None:
    loop = Loop(strategy(guards={**FAST, "interval_seconds": 10}), topology(4), interval=1.0)
    for turn in range(60):
        high, low = (900.0, 100.0) if turn % 2 else (100.0, 900.0)
        loop.tick(hosts(loop.topology.ids, output_tokens_per_second=[high, low, high, low]))
    times = [decision.decided_at for decision in loop.published]
    assert len(times) > 3
    assert min(np.diff(times)) >= 10 * 0.95
    assert "interval" in {decision.publish_reason for decision in loop.decisions}


@pytest.mark.fault("R9")
def test_3_an_oscillation_under_the_dead_band_is_never_published() -> None:
    loop = Loop(strategy(guards={**FAST, "hysteresis_ratio": 0.015}), topology(4))
    for turn in range(40):
        high, low = (505.0, 495.0) if turn % 2 else (495.0, 505.0)
        loop.tick(hosts(loop.topology.ids, output_tokens_per_second=[high, low, high, low]))
    assert [decision.publish_reason for decision in loop.published] == ["first"]


@pytest.mark.fault("R5")
@pytest.mark.parametrize("law", ["capacity", "inverse_p99", "equal", "static"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_4_any_floats_give_finite_integers_of_at_least_one(law: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    ids = topology(count).ids
    loop = Loop(strategy(law=law, guards={"min_samples": 1}), topology(count))
    signals = data.draw(arrays(np.float64, (3, len(Signal), count), elements=st.floats()))
    for columns in signals:
        decision = loop.tick(table(ids, dict(zip(map(str, Signal), columns, strict=True))))
        assert min(decision.weights.weights) >= 1
        assert sum(decision.weights.weights) == 1_000_000
        assert all(math.isfinite(share) for share in decision.memory.smoothed.values())


@pytest.mark.fault("R5")
def test_4_zero_traffic_and_more_errors_than_requests_are_survived() -> None:
    loop = Loop(strategy(), topology(4))
    decision = loop.tick(
        hosts(
            loop.topology.ids,
            requests_per_second=[0, 5, 5, 5],
            errors_per_second=[0, 7, 0, 0],
            good_requests_per_second=0,
            running=0,
            kv_usage_ratio=0,
        ),
    )
    assert min(decision.weights.weights) >= 1
    assert decision.states[loop.topology.ids[1]] == "emergency"


@pytest.mark.fault("R6")
@given(st.sets(st.integers(0, 9), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_5_endpoints_without_samples_stay_between_floor_and_median(missing: set[int]) -> None:
    loop = Loop(strategy(guards=FAST), topology(10))
    tokens = np.linspace(200, 1500, 10)
    columns = {name: np.full(10, 1.0) for name in ("running", "window_requests")}
    columns = {**columns, "window_requests": np.full(10, 300.0), "output_tokens_per_second": tokens}
    for column in columns.values():
        column[list(missing)] = NAN
    decision = loop.ticks(3, table(loop.topology.ids, columns))
    unsampled = shares(decision)[list(missing)]
    assert (unsampled <= np.median(shares(decision)) + 1e-6).all()
    assert (unsampled >= 0.1 / 10 - 1e-6).all()
    assert decision.states[loop.topology.ids[min(missing)]] == "no data"


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=8))
@settings(max_examples=60, deadline=None)
def test_6_one_snapshot_never_gives_winner_takes_all(tokens: list[float]) -> None:
    count = len(tokens)
    loop = Loop(strategy(), topology(count))
    decision = loop.tick(hosts(loop.topology.ids, output_tokens_per_second=tokens))
    assert max(shares(decision)) <= 1.1 / count + 2e-6
    assert min(shares(decision)) >= 0.8 / count - 2e-6


@given(st.lists(st.floats(1.0, 1.18), min_size=2, max_size=10))
@settings(max_examples=60, deadline=None)
def test_7_a_small_latency_spread_moves_shares_no_further_than_its_exponent(slowness: list[float]) -> None:
    count = len(slowness)
    loop = Loop(strategy(guards=FAST), topology(count))
    decision = loop.ticks(3, hosts(loop.topology.ids, ttft_p90_seconds=0.3 * np.array(slowness)))
    assert max(shares(decision)) <= 1.18**0.5 / count + 2e-6


@pytest.mark.parametrize("count", [4, 10, 100])
def test_8_white_noise_moves_under_one_percent_of_traffic_per_update(count: int) -> None:
    random = np.random.default_rng(8)
    loop = Loop(strategy(), topology(count))
    for _ in range(240):
        noise = random.uniform(0.8, 1.2, (2, count))
        loop.tick(
            hosts(
                loop.topology.ids,
                output_tokens_per_second=500 * noise[0],
                ttft_p90_seconds=0.3 * noise[1],
            ),
        )
    settled = loop.decisions[40:]
    moved = [moved_share(old.weights, new.weights) for old, new in pairwise(settled)]
    assert np.mean(moved) < 0.01


@pytest.mark.parametrize("window_requests", [300.0, 3.0])
def test_9_a_full_kv_cache_with_few_requests_lowers_the_weight(window_requests: float) -> None:
    loop = Loop(strategy(guards=FAST), topology(4))
    signals = hosts(
        loop.topology.ids,
        kv_usage_ratio=[0.95, 0.4, 0.4, 0.4],
        running=[3, 40, 40, 40],
        window_requests=[window_requests, 300, 300, 300],
        requests_per_second=[window_requests / 60, 5, 5, 5],
        good_requests_per_second=[window_requests / 60, 5, 5, 5],
        output_tokens_per_second=NAN,
    )
    decision = loop.ticks(3, signals)
    assert shares(decision)[0] < 0.6 * shares(decision)[1]


def test_10_an_outlier_changes_its_own_share_and_a_proportional_refill_only() -> None:
    loop = Loop(strategy(guards={"dead_band_ratio": 0}), topology(10))
    tokens = np.linspace(400, 600, 10)
    before = loop.ticks(200, hosts(loop.topology.ids, output_tokens_per_second=tokens))
    tokens[3] = 20
    after = loop.tick(hosts(loop.topology.ids, output_tokens_per_second=tokens))
    refill = np.delete(shares(after) / shares(before), 3)
    assert shares(after)[3] < 0.81 * shares(before)[3]
    assert refill == pytest.approx(np.full(9, refill[0]), rel=1e-3)
    assert refill[0] > 1


def test_11_a_constant_metric_gives_equal_weights_and_a_warning() -> None:
    loop = Loop(strategy(), topology(10))
    decision = loop.ticks(3, hosts(loop.topology.ids))
    assert set(decision.weights.weights) == {100_000}
    assert any("flat signal: `kv_usage_ratio` is 0.4" in warning for warning in decision.warnings)
    assert not any("errors_per_second" in warning for warning in decision.warnings)


@pytest.mark.parametrize("tick", [1.0, 5.0])
def test_12_a_tenfold_fall_is_followed_within_15_percent_after_two_time_constants(tick: float) -> None:
    # The default step limit (20 % per 5 s, time constant 22 s) is slower than tau_down and would bind.
    guards = {"step_down_ratio": 1, "step_up_ratio": 100, "slow_start_seconds": 0, "tau_up_seconds": 10}
    loop = Loop(strategy(law="inverse_p99", parameters={"mode": "continuous"}, guards=guards), topology(20))
    before = loop.ticks(50, hosts(loop.topology.ids))
    latency = [20.0, *[2.0] * 19]
    loop.interval = tick
    after = loop.ticks(round(20 / tick), hosts(loop.topology.ids, latency_p99_seconds=latency))
    wanted = 0.1 / 19.1
    start = shares(before)[0]
    assert abs(shares(after)[0] - wanted) <= 0.15 * (start - wanted)


def test_12_with_default_limits_the_step_binds_and_is_kept() -> None:
    loop = Loop(strategy(), topology(20))
    before = loop.ticks(60, hosts(loop.topology.ids))
    tokens = [50.0, *[500.0] * 19]
    falls = [
        shares(loop.tick(hosts(loop.topology.ids, output_tokens_per_second=tokens)))[0] for _ in range(4)
    ]
    expected = shares(before)[0] * 0.8 ** np.arange(1, 5)
    assert falls == pytest.approx(expected, rel=1e-3)


@pytest.mark.fault("R4")
def test_13_an_outage_holds_then_fades_without_churn() -> None:
    guards = {"hold_seconds": 300, "fade_seconds": 600}
    loop = Loop(strategy(guards=guards), topology(10))
    before = loop.ticks(60, hosts(loop.topology.ids, output_tokens_per_second=np.linspace(200, 900, 10)))
    count = len(loop.published)
    held = [loop.tick() for _ in range(60)]
    assert all(shares(decision) == pytest.approx(shares(before), abs=1e-6) for decision in held)
    assert len(loop.published) == count
    assert set(held[-1].states.values()) == {"held"}
    fading = [loop.tick() for _ in range(120)]
    assert set(fading[0].states.values()) == {"fading"}
    assert len(loop.published) - count < 25
    halfway = (stage(before, "step") + 0.1) / 2
    assert shares(fading[59]) == pytest.approx(halfway, abs=1e-3)
    assert shares(fading[-1]) == pytest.approx(np.full(10, 0.1), abs=1e-3)
    moves = [moved_share(a.proposed, b.proposed) for a, b in pairwise(fading)]
    assert max(moves) < 0.005


@pytest.mark.fault("R6")
def test_more_than_half_of_the_metrics_missing_counts_as_an_outage() -> None:
    loop = Loop(strategy(), topology(10))
    before = loop.ticks(30, hosts(loop.topology.ids, output_tokens_per_second=np.linspace(200, 900, 10)))
    known = np.arange(10) < 4
    columns = {"running": np.where(known, 90.0, NAN), "output_tokens_per_second": np.where(known, 9.0, NAN)}
    decision = loop.tick(table(loop.topology.ids, columns))
    assert shares(decision) == pytest.approx(shares(before), abs=1e-6)
    assert "4 of 10 endpoints have fresh signals" in " ".join(decision.warnings)


@pytest.mark.fault("R7")
def test_an_endpoint_that_fails_fast_is_at_the_floor_within_three_updates() -> None:
    loop = Loop(strategy(), topology(10))
    loop.ticks(20, hosts(loop.topology.ids))
    failing = hosts(
        loop.topology.ids,
        errors_per_second=[50, *[0] * 9],
        requests_per_second=[50, *[5] * 9],
        good_requests_per_second=[0, *[5] * 9],
        window_requests=[0, *[300] * 9],
        ttft_p90_seconds=[0.001, *[0.3] * 9],
    )
    decision = loop.ticks(3, failing)
    assert decision.weights.weights[0] == 10_000
    assert loop.decisions[-3].publish_reason == "emergency"
    assert decision.states[loop.topology.ids[0]] == "emergency"


@pytest.mark.fault("R7")
def test_even_under_the_emergency_threshold_errors_outweigh_tiny_latency() -> None:
    loop = Loop(strategy(guards={**FAST, "emergency_error_ratio": 1}), topology(4))
    signals = hosts(
        loop.topology.ids,
        errors_per_second=[40, 0, 0, 0],
        requests_per_second=[50, 5, 5, 5],
        ttft_p90_seconds=[0.001, 0.3, 0.3, 0.3],
    )
    decision = loop.ticks(3, signals)
    assert shares(decision)[0] == pytest.approx(0.1 / 4, rel=0.01)


@pytest.mark.fault("R8")
@pytest.mark.parametrize(
    ("health", "errors"),
    [(dict.fromkeys(range(6), Health.UNHEALTHY), 0.0), ({}, 5.0), ({0: Health.DRAINING}, 5.0)],
)
def test_when_most_endpoints_are_bad_weights_are_equal_and_say_why(
    health: dict[int, Health], errors: float
) -> None:
    loop = Loop(strategy(), topology(10, health))
    signals = hosts(
        loop.topology.ids, errors_per_second=errors, output_tokens_per_second=np.linspace(200, 900, 10)
    )
    decision = loop.ticks(5, signals)
    assert set(decision.weights.weights) == {100_000}
    assert any(warning.startswith("panic") for warning in decision.warnings)


@pytest.mark.fault("R19")
def test_a_clock_that_runs_backwards_is_no_time() -> None:
    loop = Loop(strategy(), topology(4))
    before = loop.ticks(40, hosts(loop.topology.ids))
    signals = hosts(loop.topology.ids, output_tokens_per_second=[100, 500, 500, 500])
    after = loop.tick(signals, after=-3600.0)
    assert after.proposed == before.proposed
