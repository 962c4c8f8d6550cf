"""Which answer counts when several have a value."""

from __future__ import annotations

from controlplane.model.strategy import SignalsSpec
from controlplane.sources.assembly import MAX_UNMATCHED_SHOWN, Assembly, Cell
from tests.support.signal_requests import signal_request, values

REQUEST = signal_request(("a:1", "b:1"), SignalsSpec(custom={"mine": "up"}))


def test_for_each_endpoint_the_first_answer_with_a_value_wins() -> None:
    assembly = Assembly(REQUEST)
    assembly.add("requests_per_second", [Cell("a:1", 10.0, 0.0)])
    assembly.add("requests_per_second", [Cell("a:1", 99.0, 0.0), Cell("b:1", 20.0, 0.0)])
    readings = assembly.readings(1.0)
    assert len(readings.samples) == 2
    assert values(readings) == {("requests_per_second", "a:1"): 10.0, ("requests_per_second", "b:1"): 20.0}


def test_two_values_within_one_answer_both_go_on() -> None:
    assembly = Assembly(REQUEST)
    assembly.add("mine", [Cell("a:1", 1.0, 0.0), Cell("a:1", 2.0, 0.0)])
    assert [sample.value for sample in assembly.readings(1.0).samples] == [1.0, 2.0]


def test_unresolved_are_the_expected_signals_that_nobody_named() -> None:
    assembly = Assembly(REQUEST)
    assembly.add("running", [Cell("a:1", 1.0, 0.0)])
    assembly.resolve("ttft_p90_seconds")
    unresolved = assembly.readings(1.0).unresolved
    assert "mine" in unresolved
    assert not {"running", "ttft_p90_seconds"} & set(unresolved)


def test_strangers_are_counted_once_each_and_only_some_are_shown() -> None:
    assembly = Assembly(REQUEST)
    for _ in range(2):
        assembly.unmatched(f"host-{number:03}" for number in range(50))
    readings = assembly.readings(1.0)
    assert readings.unmatched_series == 50
    assert readings.unmatched == tuple(f"host-{number:03}" for number in range(MAX_UNMATCHED_SHOWN))
