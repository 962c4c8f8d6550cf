"""The laws' arithmetic, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from controlplane.core.strategies import BUILTIN, Law, LawResult, LawView
from controlplane.core.strategies.inverse_p99 import is_stable
from controlplane.model.signals import SignalTable
from controlplane.model.strategy import Guards
from tests.support.core_worlds import hosts, table, topology

NAN = math.nan


def weigh(law: str, signals: SignalTable, guards: Guards | None = None, **parameters: Any) -> LawResult:
    found = BUILTIN.get(law)
    assert found
    count = len(signals.endpoints)
    view = LawView(table=signals, topology=topology(count), guards=guards or Guards(), window_seconds=60.0)
    return found.opine(view, parameters)


def ids(count: int) -> tuple[str, ...]:
    return topology(count).ids


def test_capacity_worked_by_hand() -> None:
    signals = table(
        ids(3),
        {
            "kv_usage_ratio": [0.4, 0.8, 0.2],
            "running": [64, 128, 32],
            "waiting": [0, 10, 0],
            "output_tokens_per_second": [1000, 800, 500],
            "requests_per_second": 5,
            "errors_per_second": [0, 0.5, 0],
            "ttft_p90_seconds": [0.2, 0.8, 0.2],
            "window_requests": 300,
        },
    )
    result = weigh("capacity", signals)
    # Utilisation: 0.4/0.8 is 0.5, 0.8/0.8 with a queue of 0.5·10/5 is 2, 0.2/0.8 is 0.25.
    assert result.terms["utilization"] == pytest.approx([0.5, 2.0, 0.25])
    # The fleet's error ratio is 30/900: (0 + 20/30)/320 and (30 + 20/30)/320.
    assert result.terms["error_ratio"] == pytest.approx([0.0020833, 0.0958333, 0.0020833], rel=1e-4)
    # Goodput over both: 1000/0.5020833, 800/2.0958333, 500/0.2520833.
    assert result.terms["capacity"] == pytest.approx([1991.70, 381.71, 1983.47], rel=1e-4)
    assert result.terms["latency_factor"] == pytest.approx([1.0, 0.5, 1.0])
    assert result.raw == pytest.approx([1983.41, 156.03, 1975.21], rel=1e-4)


def test_capacity_is_neutral_towards_an_idle_endpoint() -> None:
    signals = hosts(
        ids(4),
        output_tokens_per_second=[300, 500, 900, 0],
        requests_per_second=[5, 5, 5, 0],
        good_requests_per_second=[5, 5, 5, 0],
        window_requests=[300, 300, 300, 0],
        running=[40, 40, 40, 0],
        waiting=[1, 1, 1, 0],
        kv_usage_ratio=[0.4, 0.4, 0.4, 0],
    )
    raw = weigh("capacity", signals).raw
    assert raw[3] == pytest.approx(np.median(raw[:3]))


def test_capacity_does_not_take_an_endpoint_that_fails_everything_for_an_idle_one() -> None:
    signals = hosts(
        ids(4),
        output_tokens_per_second=[0, 500, 500, 500],
        requests_per_second=[50, 5, 5, 5],
        errors_per_second=[50, 0, 0, 0],
        good_requests_per_second=[0, 5, 5, 5],
        window_requests=[0, 300, 300, 300],
    )
    raw = weigh("capacity", signals).raw
    assert raw[0] == 0


def test_capacity_lowers_an_endpoint_that_hangs_with_a_full_queue() -> None:
    signals = hosts(
        ids(4),
        output_tokens_per_second=[500, 500, 500, 0],
        requests_per_second=[5, 5, 5, 0],
        good_requests_per_second=[5, 5, 5, 0],
        window_requests=[300, 300, 300, 0],
        waiting=[1, 1, 1, 50],
    )
    raw = weigh("capacity", signals).raw
    assert raw[3] < 0.2 * raw[0]


def test_capacity_has_no_opinion_of_an_idle_fleet() -> None:
    signals = table(ids(3), {"running": 0, "kv_usage_ratio": 0.001, "window_requests": 0, "waiting": 0})
    assert np.isnan(weigh("capacity", signals).raw).all()


def test_capacity_never_mixes_tokens_and_requests() -> None:
    signals = hosts(ids(4), output_tokens_per_second=[500, 500, NAN, NAN])
    result = weigh("capacity", signals)
    assert result.terms["goodput"] == pytest.approx(np.full(4, 5.0))


def test_capacity_does_not_take_an_unknown_queue_for_an_empty_one() -> None:
    signals = hosts(ids(4), waiting=[10, 10, 10, NAN])
    utilization = weigh("capacity", signals).terms["utilization"]
    assert utilization[3] == utilization[0]


@pytest.mark.parametrize(
    ("latency", "weight"), [(0.01, 1.0), (0.05, 0.7), (0.199, 0.7), (0.2, 0.3), (9.0, 0.3), (NAN, NAN)]
)
def test_inverse_p99_steps(latency: float, weight: float) -> None:
    raw = weigh("inverse_p99", table(ids(1), {"latency_p99_seconds": [latency]})).raw
    assert raw[0] == pytest.approx(weight, nan_ok=True)


def test_inverse_p99_continuous_with_exponent() -> None:
    signals = table(ids(3), {"latency_p99_seconds": [1, 4, 9], "window_requests": [100, 100, 5]})
    raw = weigh("inverse_p99", signals, mode="continuous", exponent=0.5).raw
    assert raw == pytest.approx([1.0, 0.5, NAN], nan_ok=True)


def test_stability_bounds_from_the_literature() -> None:
    # At 80 % utilisation: gain below 0.4 without delay, about 0.17 with two updates of delay.
    assert is_stable(0.39, 4.0, 0)
    assert not is_stable(0.41, 4.0, 0)
    assert is_stable(0.16, 4.0, 2)
    assert not is_stable(0.17, 4.0, 2)


def test_inverse_p99_warns_when_smoothing_is_too_fast_and_names_what_would_do() -> None:
    signals = hosts(ids(3))
    warnings = weigh("inverse_p99", signals, mode="continuous").warnings
    assert "tau_down_seconds` to 2" in warnings[0] or "tau_down_seconds` to 3" in warnings[0]
    slow = Guards(tau_down_seconds=35, tau_up_seconds=60)
    assert not weigh("inverse_p99", signals, slow, mode="continuous").warnings
    assert not weigh("inverse_p99", signals).warnings


def test_static_weights_and_default() -> None:
    result = weigh("static", hosts(ids(3)), weights={ids(3)[1]: 5, "10.9.9.9:1": 2}, default=2)
    assert result.raw.tolist() == [2, 5, 2]
    assert "10.9.9.9:1" in result.warnings[0]
    unset = weigh("static", hosts(ids(3)), weights={ids(3)[0]: 10, ids(3)[1]: 30})
    assert unset.raw.tolist() == [10, 30, 20]


def test_a_registry_grows_and_keeps_names_unique() -> None:
    law: Law[Any] = BUILTIN.laws["equal"]
    mine = Law(name="mine", summary="", parameters=law.parameters, weigh=law.weigh)
    assert "mine" in BUILTIN.with_law(mine).names
    assert "mine" not in BUILTIN.names
    with pytest.raises(ValueError, match="already"):
        BUILTIN.with_law(law)


def test_a_law_with_figures_for_others_is_an_error() -> None:
    law: Law[Any] = BUILTIN.laws["equal"]
    wrong = Law(
        name="wrong", summary="", parameters=law.parameters, weigh=lambda _view, _: LawResult(np.ones(7))
    )
    view = LawView(table=hosts(ids(2)), topology=topology(2), guards=Guards(), window_seconds=60)
    with pytest.raises(ValueError, match="another number"):
        wrong.opine(view, {})
