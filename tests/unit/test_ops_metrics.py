"""Metrics as Prometheus parses them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controlplane.model.fleet import FleetStatus
from controlplane.ops.metrics import StateCollector
from controlplane.sources.fuse import FuseMetrics
from controlplane.sources.signal_metrics import SignalMetrics
from tests.support import state_views as states


def scrape(state: states.FixedState) -> dict[tuple[str, tuple[str, ...]], float]:
    """Scrape once: (name, label values in label order) → value. A repeated series fails."""
    registry = CollectorRegistry()
    StateCollector(state=state, registry=registry)
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, tuple(value for _, value in sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_metrics_follow_the_state() -> None:
    found = scrape(states.FixedState(states.view(store_degraded="disk full")))
    assert found["trimtab_decision_age_seconds", ("chat",)] == 3.0
    assert found["trimtab_endpoint_weight_ratio", (states.FAST, "chat")] == 0.75
    assert found["trimtab_canary_phase", ("progressing", "chat")] == 1.0
    assert found["trimtab_canary_phase", ("idle", "chat")] == 0.0
    assert found["trimtab_store_degraded", ()] == 1.0
    assert found["trimtab_signal_resolved_ratio", ("chat", "ttft_p90_seconds")] == 0.0
    assert found["trimtab_signal_resolved_ratio", ("chat", "running")] == 0.5
    assert found["trimtab_nodes", ("nacked", "ClusterLoadAssignment")] == 1.0
    assert found["trimtab_build_info", ("0.1.0",)] == 1.0


def test_series_end_with_what_they_describe() -> None:
    # given a state that was scraped with two services
    state = states.FixedState(states.view())
    before = scrape(state)
    # when one is gone, and every node
    state.current = states.view(services=state.current.services[1:], fleet=FleetStatus(500.0, ()))
    after = scrape(state)
    # then nothing of them is left
    assert any("chat" in labels for _, labels in before)
    assert not any("chat" in labels for _, labels in after)
    assert after["trimtab_nodes_connected", ()] == 0.0


def test_no_node_is_ever_a_label() -> None:
    found = scrape(states.FixedState(states.view()))
    assert not any("edge" in label for _, labels in found for label in labels)


def test_registering_does_not_read_the_state() -> None:
    state = states.FixedState(states.view())
    StateCollector(state=state, registry=CollectorRegistry(auto_describe=True))
    assert state.reads == 0


def test_a_name_that_another_room_has_is_refused_at_the_start() -> None:
    registry = CollectorRegistry()
    Gauge("trimtab_ready", "Somebody else's.", registry=registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        StateCollector(state=states.FixedState(states.view()), registry=registry)


def test_all_families_are_named_in_advance() -> None:
    collector = StateCollector(state=states.FixedState(states.view()), registry=CollectorRegistry())
    assert [family.name for family in collector.describe()] == [
        family.name for family in collector.collect()
    ]


def test_no_name_is_taken_by_the_sources_that_share_the_registry() -> None:
    registry = CollectorRegistry()
    FuseMetrics(registry)
    SignalMetrics(registry)
    StateCollector(state=states.FixedState(states.view()), registry=registry)
