"""Subsets, their figures, and verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.slo import judge, observe, subsets
from controlplane.model.rollout import (
    Analysis,
    CanarySpec,
    MetricCheck,
    Observation,
    SubsetObservation,
    Verdict,
)
from controlplane.model.signals import SignalTable
from controlplane.model.strategy import Slo
from controlplane.model.topology import Endpoint, Health, ServiceTopology
from tests.support.rollout_driver import subset

NAN = math.nan


def _topology(*versions: str, health: tuple[Health, ...] = ()) -> ServiceTopology:
    return ServiceTopology(
        "llm",
        tuple(
            Endpoint(
                address=f"10.0.0.{index + 1}",
                port=80,
                version=version,
                labels=(("tier", "gold" if index % 2 else "iron"),),
                health=health[index] if health else Health.HEALTHY,
            )
            for index, version in enumerate(versions)
        ),
    )


def _table(topology: ServiceTopology, **columns: list[float]) -> SignalTable:
    values = np.array(list(columns.values()), dtype=np.float64).T.reshape(-1, len(columns))
    return SignalTable(topology.ids, tuple(columns), values, np.zeros_like(values))


def _observation(canary: SubsetObservation, baseline: SubsetObservation | None = None) -> Observation:
    return Observation(canary=canary, baseline=baseline or subset(), acked_ratio=1.0, acked_parts=0)


def _check(**thresholds: float) -> Analysis:
    return Analysis(metrics=(MetricCheck(signal="error_ratio", **thresholds),))


def test_the_baseline_is_everything_else_unless_selected() -> None:
    topology = _topology("v1", "v2", "v1", "v0")
    first, second, third, fourth = topology.ids

    assert subsets(topology, CanarySpec(schema=1, canary={"version": "v2"})) == (
        (second,),
        (first, third, fourth),
    )
    selected = CanarySpec(schema=1, canary={"version": "v2"}, baseline={"version": "v1"})
    assert subsets(topology, selected) == ((second,), (first, third))


def test_an_endpoint_in_both_selections_is_canary() -> None:
    topology = _topology("v1", "v1", "v2")
    spec = CanarySpec(schema=1, canary={"version": "v1", "tier": "gold"}, baseline={"version": "v1"})
    assert subsets(topology, spec) == ((topology.ids[1],), (topology.ids[0],))


def test_figures_are_weighted_by_requests() -> None:
    topology = _topology("v1", "v1", "v2", health=(Health.HEALTHY, Health.DRAINING, Health.HEALTHY))
    table = _table(
        topology,
        ttft_p90_seconds=[1.0, 2.0, 99.0],
        waiting=[4.0, 8.0, 99.0],
        window_requests=[30.0, 10.0, 99.0],
        errors_per_second=[1.0, 0.0, 99.0],
        requests_per_second=[3.0, 5.0, 99.0],
    )

    seen = observe(table, topology, topology.ids[:2])

    assert (seen.endpoints, seen.healthy, seen.window_requests) == (2, 1, 40.0)
    assert seen.figures["ttft_p90_seconds"] == pytest.approx(1.25)
    assert seen.figures["waiting"] == pytest.approx(6.0)
    assert seen.figures["error_ratio"] == pytest.approx(1 / 8)


def test_unknown_is_left_out_never_zero() -> None:
    topology = _topology("v1", "v1")
    table = _table(
        topology,
        ttft_p90_seconds=[NAN, NAN],
        latency_p99_seconds=[NAN, 3.0],
        window_requests=[NAN, NAN],
        errors_per_second=[1.0, NAN],
        requests_per_second=[NAN, 5.0],
    )

    seen = observe(table, topology, topology.ids)

    assert math.isnan(seen.window_requests)
    assert seen.figures == {
        "latency_p99_seconds": 3.0,
        "requests_per_second": 5.0,
        "errors_per_second": 1.0,
    }


def test_no_members_know_nothing() -> None:
    topology = _topology("v1")
    seen = observe(_table(topology, waiting=[1.0]), topology, ())
    assert (seen.endpoints, seen.healthy, dict(seen.figures)) == (0, 0, {})
    assert math.isnan(seen.window_requests)


def test_no_requests_are_no_error_ratio() -> None:
    topology = _topology("v1")
    table = _table(topology, errors_per_second=[0.0], requests_per_second=[0.0], window_requests=[0.0])
    assert "error_ratio" not in observe(table, topology, topology.ids).figures


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100) | st.just(NAN),
            st.floats(0, 1e6) | st.just(NAN),
            st.floats(0, 1e6) | st.just(NAN),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_figure_lies_between_the_best_and_the_worst(rows: list[tuple[float, float, float]]) -> None:
    topology = _topology(*["v1"] * len(rows))
    latency, requests, errors = (list(column) for column in zip(*rows, strict=True))
    table = _table(
        topology,
        latency_p99_seconds=latency,
        window_requests=requests,
        errors_per_second=errors,
        requests_per_second=requests,
    )

    figures = observe(table, topology, topology.ids).figures

    if "latency_p99_seconds" in figures:
        known = [value for value in latency if not math.isnan(value)]
        assert min(known) - 1e-9 <= figures["latency_p99_seconds"] <= max(known) + 1e-9
    assert 0 <= figures.get("error_ratio", 0.0) <= 1


@pytest.mark.parametrize(
    ("analysis", "canary", "baseline", "verdict"),
    [
        (_check(max_value=0.05), {"error_ratio": 0.05}, {}, Verdict.PASS),
        (_check(max_value=0.05), {"error_ratio": 0.051}, {}, Verdict.FAIL),
        (_check(max_value=0.05), {"error_ratio": NAN}, {}, Verdict.NO_DATA),
        (_check(max_value=0.05), {"error_ratio": math.inf}, {}, Verdict.NO_DATA),
        (_check(max_value=0.05), {"error_ratio": -1.0}, {}, Verdict.ERROR),
        (_check(max_value=0.05), {}, {}, Verdict.NO_DATA),
        (_check(max_ratio_to_baseline=2), {"error_ratio": 0.02}, {"error_ratio": 0.01}, Verdict.PASS),
        (_check(max_ratio_to_baseline=2), {"error_ratio": 0.03}, {"error_ratio": 0.01}, Verdict.FAIL),
        (_check(max_ratio_to_baseline=2), {"error_ratio": 0.03}, {}, Verdict.NO_DATA),
        # A baseline without errors lets the canary fail, but only above the absolute limit too.
        (_check(max_ratio_to_baseline=2), {"error_ratio": 0.001}, {"error_ratio": 0.0}, Verdict.FAIL),
        (
            _check(max_value=0.01, max_ratio_to_baseline=2),
            {"error_ratio": 0.001},
            {"error_ratio": 0.0},
            Verdict.PASS,
        ),
        (
            _check(max_value=0.01, max_ratio_to_baseline=2),
            {"error_ratio": 0.02},
            {"error_ratio": 0.0},
            Verdict.FAIL,
        ),
        # Both thresholds must be exceeded: as bad as the baseline is not a breach.
        (
            _check(max_value=0.01, max_ratio_to_baseline=2),
            {"error_ratio": 0.3},
            {"error_ratio": 0.2},
            Verdict.PASS,
        ),
        # Within the absolute limit nothing has to be known of the baseline.
        (_check(max_value=0.01, max_ratio_to_baseline=2), {"error_ratio": 0.01}, {}, Verdict.PASS),
        (_check(max_value=0.01, max_ratio_to_baseline=2), {"error_ratio": 0.02}, {}, Verdict.NO_DATA),
    ],
)
def test_one_check(
    analysis: Analysis, canary: dict[str, float], baseline: dict[str, float], verdict: Verdict
) -> None:
    judgement = judge(analysis, Slo(), _observation(subset(canary), subset(baseline)))
    assert judgement.verdict is verdict
    assert judgement.reason


def test_the_limit_in_force_is_the_larger_threshold() -> None:
    observation = _observation(subset({"error_ratio": 0.3}), subset({"error_ratio": 0.1}))
    (metric,) = judge(_check(max_value=0.01, max_ratio_to_baseline=2), Slo(), observation).metrics
    assert (metric.value, metric.baseline, metric.limit) == (0.3, 0.1, 0.2)
    assert metric.reason == "`error_ratio` 0.3 is above 0.2 (baseline 0.1)"


def test_a_relative_check_without_baseline_endpoints_is_an_error() -> None:
    observation = _observation(subset({"error_ratio": 0.3}), subset({}, endpoints=0, healthy=0))
    assert judge(_check(max_ratio_to_baseline=2), Slo(), observation).verdict is Verdict.ERROR


def test_a_baseline_without_traffic_is_expected_once_the_canary_has_it_all() -> None:
    idle = subset({})
    good, gone = _observation(subset({"error_ratio": 0.3}), idle), _observation(subset({}), idle)
    negative = _observation(subset({"error_ratio": -1.0}), idle)
    verdicts = [
        judge(_check(max_ratio_to_baseline=2), Slo(), observation, is_baseline_idle=True).verdict
        for observation in (good, gone, negative)
    ]
    assert verdicts == [Verdict.PASS, Verdict.NO_DATA, Verdict.ERROR]


FIGURES = {
    Verdict.PASS: 0.0,
    Verdict.FAIL: 1.0,
    Verdict.ERROR: -1.0,
    Verdict.NO_DATA: NAN,
}


@given(st.lists(st.sampled_from(list(Verdict)), min_size=1, max_size=5))
def test_the_worst_check_decides(verdicts: list[Verdict]) -> None:
    checks = tuple(MetricCheck(signal=f"s{index}", max_value=0.5) for index in range(len(verdicts)))
    figures = {f"s{index}": FIGURES[verdict] for index, verdict in enumerate(verdicts)}

    judgement = judge(Analysis(metrics=checks), Slo(), _observation(subset(figures)))

    assert [metric.verdict for metric in judgement.metrics] == verdicts
    for worst in (Verdict.FAIL, Verdict.ERROR, Verdict.NO_DATA, Verdict.PASS):
        if worst in verdicts:
            assert judgement.verdict is worst
            break


@pytest.mark.parametrize(("requests", "minimum"), [(19.0, 20), (NAN, 20), (0.0, 1)])
def test_too_few_requests_decide_nothing(requests: float, minimum: int) -> None:
    analysis = Analysis(metrics=_check(max_value=0.05).metrics, min_requests=minimum)
    observation = _observation(subset({"error_ratio": 1.0}, requests=requests))
    assert judge(analysis, Slo(), observation).verdict is Verdict.NO_DATA


def test_without_a_minimum_the_number_of_requests_may_be_unknown() -> None:
    analysis = Analysis(metrics=_check(max_value=0.05).metrics, min_requests=0)
    assert judge(analysis, Slo(), _observation(subset(requests=NAN))).verdict is Verdict.PASS


def test_zero_measurements_are_never_success() -> None:
    judgement = judge(Analysis(), Slo(), _observation(subset()))
    assert (judgement.verdict, judgement.metrics) == (Verdict.NO_DATA, ())


def test_the_slo_is_the_default() -> None:
    slo = Slo(ttft_p90_seconds=2.0, latency_p99_seconds=30.0, error_ratio=0.01)
    slow = subset({"ttft_p90_seconds": 2.5, "latency_p99_seconds": 20.0, "error_ratio": 0.0})
    judgement = judge(Analysis(), slo, _observation(slow))
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason == "`ttft_p90_seconds` 2.5 is above 2"
    assert len(judgement.metrics) == 3
