"""What the runtime counts and times while it works."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controlplane.model.decision import Decision

_DECISION_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Instruments:
    """Counters and histograms of the control loop, on one registry."""

    def __init__(self, *, registry: CollectorRegistry) -> None:
        self.decision_latency = Histogram(
            "scheduler_decision_latency_seconds",
            "Time to decide weights and canaries of all services in one tick.",
            buckets=_DECISION_BUCKETS_SECONDS,
            registry=registry,
        )
        self.node_filter_failures = Counter(
            "scheduler_node_filter_failures_total",
            "Endpoints that a decision could not judge on their own signals, by state.",
            ["reason"],
            registry=registry,
        )
        self.samples_dropped = Counter(
            "trimtab_samples_dropped_total",
            "Metric samples that were not used, by reason.",
            ["reason"],
            registry=registry,
        )
        self.documents_rejected = Counter(
            "trimtab_documents_rejected_total",
            "Documents that were refused whole, by kind.",
            ["kind"],
            registry=registry,
        )
        self.publishes = Counter(
            "trimtab_publishes_total",
            "Weight vectors that were published, by service and reason.",
            ["service", "reason"],
            registry=registry,
        )
        self.tick_lag_seconds = Gauge(
            "trimtab_tick_lag_seconds",
            "How much later than its interval the last tick ended.",
            registry=registry,
        )

    def count(self, decisions: Iterable[Decision]) -> None:
        """Count what one tick decided."""
        dropped: Tally[str] = Tally()
        filtered: Tally[str] = Tally()
        for decision in decisions:
            dropped.update(drop.reason for drop in decision.inputs.table.drops)
            filtered.update(state for state in decision.states.values() if state != "ok")
            if decision.is_published:
                self.publishes.labels(decision.service, decision.publish_reason).inc()
        for reason, count in dropped.items():
            self.samples_dropped.labels(reason).inc(count)
        for reason, count in filtered.items():
            self.node_filter_failures.labels(reason.replace(" ", "_")).inc(count)
