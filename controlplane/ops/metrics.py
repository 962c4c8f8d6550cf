"""Metrics read from the state view at each scrape: nothing to keep in step, nothing to forget to clear.

What can only be counted while it happens (latencies, drops, publications) is an instrument of the
runtime instead. A series exists as long as its service, endpoint or canary does: nodes are counted by
state and never become labels, so ten thousand reconnects leave no series behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane import __version__
from controlplane.model.fleet import FleetStatus, SyncState
from controlplane.model.rollout import TOTAL_PARTS, Phase
from controlplane.ops.views.common import age, short_type
from controlplane.runtime.state import ServiceView, StateReader, StateView


class StateCollector(Collector):
    """Turns one `StateView` into metric families at each scrape."""

    def __init__(self, *, state: StateReader, registry: CollectorRegistry) -> None:
        """Register on `registry`; `state` is first read at the first scrape."""
        self._state = state
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Name all families, so that the registry refuses a name that another room already has."""
        return _families(_NOTHING)

    def collect(self) -> Iterator[Metric]:
        """Read the state once and give all families."""
        return _families(self._state.view())


_NOTHING = StateView(
    at_seconds=0.0,
    is_ready=False,
    not_ready_reason="",
    started_from_checkpoint=False,
    services=(),
    sources=(),
    fleet=FleetStatus(0.0, ()),
    versions={},
    last_tick_seconds=None,
)
"""Every family is there without a single series."""


def _families(view: StateView) -> Iterator[Metric]:
    yield from _process_families(view)
    yield from _fleet_families(view)
    yield from _service_families(view)
    yield from _decision_families(view)
    yield from _weight_families(view.services)
    yield from _canary_families(view.services)


def _process_families(view: StateView) -> Iterator[Metric]:
    build = InfoMetricFamily("trimtab_build", "Version of the running program.")
    build.add_metric([], {"version": __version__})
    yield build
    yield _single("trimtab_ready", "1 when a snapshot is being served.", float(view.is_ready))
    yield _single(
        "trimtab_store_degraded",
        "1 while the state directory refuses writes and records are kept in memory.",
        float(bool(view.store_degraded)),
    )
    yield _single(
        "trimtab_started_from_checkpoint",
        "1 when this process first served what its checkpoint held.",
        float(view.started_from_checkpoint),
    )
    tick_age = GaugeMetricFamily("trimtab_tick_age_seconds", "Time since the last tick.")
    if (seconds := age(view.at_seconds, view.last_tick_seconds)) is not None:
        tick_age.add_metric([], seconds)
    yield tick_age


def _fleet_families(view: StateView) -> Iterator[Metric]:
    yield _single("trimtab_nodes_connected", "Envoys connected now.", len(view.fleet.nodes))
    nodes = GaugeMetricFamily(
        "trimtab_nodes",
        "Connected Envoys by resource type and state of that type.",
        labels=["type", "state"],
    )
    counts = Counter(
        (short_type(status.type_url), status.state) for node in view.fleet.nodes for status in node.types
    )
    for type_name in sorted({name for name, _ in counts}):
        for state in SyncState:
            nodes.add_metric([type_name, _label(state)], counts[type_name, state])
    yield nodes


def _service_families(view: StateView) -> Iterator[Metric]:
    info = InfoMetricFamily("trimtab_strategy", "The strategy in force.", labels=["service"])
    rejected = GaugeMetricFamily(
        "trimtab_document_rejected",
        "1 while the newest document of a service stands refused.",
        labels=["service", "kind"],
    )
    frozen = GaugeMetricFamily(
        "trimtab_service_frozen", "1 while a kill switch holds the service.", labels=["service"]
    )
    flags = GaugeMetricFamily(
        "trimtab_service_flag", "1 for each standing condition of a service.", labels=["service", "flag"]
    )
    for service in view.services:
        labels = {
            "version": service.strategy.version,
            "hash": service.strategy_hash,
            "law": service.strategy.law,
        }
        info.add_metric([service.service], labels)
        rejected.add_metric([service.service, "strategy"], float(service.rejected is not None))
        rejected.add_metric([service.service, "canary"], float(service.rejected_canary is not None))
        frozen.add_metric([service.service], float(bool(service.freeze)))
        for flag in sorted(service.flags):
            flags.add_metric([service.service, flag], 1.0)
    for name in sorted(view.orphans):
        rejected.add_metric([name, "strategy"], 1.0)
    yield from (info, rejected, frozen, flags)


def _decision_families(view: StateView) -> Iterator[Metric]:
    ages = GaugeMetricFamily(
        "trimtab_decision_age_seconds", "Time since a service was last decided.", labels=["service"]
    )
    resolved = GaugeMetricFamily(
        "trimtab_signal_resolved_ratio",
        "Share of a service's endpoints for which a signal has a value.",
        labels=["service", "signal"],
    )
    for service in view.services:
        unresolved = set(service.readings.unresolved) if service.readings else set()
        shares: dict[str, float] = dict.fromkeys(unresolved, 0.0)
        if service.decision is not None:
            ages.add_metric([service.service], age(view.at_seconds, service.decision.decided_at) or 0.0)
            table = service.decision.inputs.table
            counts = np.count_nonzero(~np.isnan(table.values), axis=0)
            known = zip(table.signals, counts, strict=True)
            shares |= {signal: float(count) / max(1, len(table.endpoints)) for signal, count in known}
        for signal, share in sorted(shares.items()):
            resolved.add_metric([service.service, signal], share)
    yield from (ages, resolved)


def _weight_families(services: Iterable[ServiceView]) -> Iterator[Metric]:
    shares = GaugeMetricFamily(
        "trimtab_endpoint_weight_ratio",
        "Share of a service's weight that Envoy gives an endpoint, 0 to 1.",
        labels=["service", "endpoint"],
    )
    states = GaugeMetricFamily(
        "trimtab_endpoints", "Endpoints of a service by state.", labels=["service", "state"]
    )
    for service in services:
        if service.decision is None:
            continue
        vector = service.decision.weights
        for endpoint, share in zip(vector.endpoints, vector.shares, strict=True):
            shares.add_metric([service.service, endpoint], share)
        for state, count in sorted(Counter(service.decision.states.values()).items()):
            states.add_metric([service.service, _label(state)], count)
    yield from (shares, states)


def _canary_families(services: Iterable[ServiceView]) -> Iterator[Metric]:
    phases = GaugeMetricFamily(
        "trimtab_canary_phase", "1 for the phase a canary is in, else 0.", labels=["service", "phase"]
    )
    weights = GaugeMetricFamily(
        "trimtab_canary_weight_ratio", "Share of traffic set for a canary, 0 to 1.", labels=["service"]
    )
    for service in services:
        if service.canary is None:
            continue
        for phase in Phase:
            phases.add_metric([service.service, phase], float(service.canary.state.phase is phase))
        weights.add_metric([service.service], service.canary.state.canary_parts / TOTAL_PARTS)
    yield from (phases, weights)


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _label(words: str) -> str:
    """Write a state as a label value: lower case, no spaces."""
    return words.lower().replace(" ", "_")
