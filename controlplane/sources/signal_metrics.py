"""Trimtab's own metrics about reading signals; made once per registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class SignalMetrics:
    """Counts of requests by outcome, and what each service's last read resolved to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics on `registry`."""
        self.requests = Counter(
            "trimtab_signal_requests",
            "Queries and scrapes, by what became of them.",
            ("source", "outcome"),
            registry=registry,
        )
        self.seconds = Histogram(
            "trimtab_signal_read_seconds",
            "Time to read all signals of one service.",
            ("source",),
            registry=registry,
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        )
        self.unresolved = Gauge(
            "trimtab_signal_unresolved",
            "1 for a signal that no endpoint of the service exposes under any known metric name.",
            ("service", "signal"),
            registry=registry,
        )
        self.unmatched = Gauge(
            "trimtab_signal_unmatched_series",
            "Series of the service's queries whose join label names no known endpoint.",
            ("service",),
            registry=registry,
        )
