"""What the store reports about itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class StoreMetrics:
    """Metrics of all logs of one process."""

    def __init__(self, *, registry: CollectorRegistry) -> None:
        """Register the metrics."""
        names = ("log",)
        self.append_seconds = Histogram(
            "trimtab_store_append_seconds",
            "Time to write one batch of records and sync it.",
            names,
            buckets=_BUCKETS,
            registry=registry,
        )
        self.damaged_bytes = Counter(
            "trimtab_store_damaged_bytes",
            "Bytes put aside because they held no valid record.",
            names,
            registry=registry,
        )
        self.waiting_records = Gauge(
            "trimtab_store_waiting_records",
            "Records held in memory because the disk refuses writes.",
            names,
            registry=registry,
        )
        self.lost_records = Counter(
            "trimtab_store_lost_records",
            "Records dropped because the disk refused writes for too long.",
            names,
            registry=registry,
        )


class Instruments:
    """The metrics of one log."""

    def __init__(self, metrics: StoreMetrics, *, log: str) -> None:
        self.append_seconds = metrics.append_seconds.labels(log)
        self.damaged_bytes = metrics.damaged_bytes.labels(log)
        self._waiting = metrics.waiting_records.labels(log)
        self._lost = metrics.lost_records.labels(log)
        self._counted = 0

    def observe(self, *, waiting: int, lost: int) -> None:
        """Note how many records wait, and how many were lost so far."""
        self._waiting.set(waiting)
        self._lost.inc(lost - self._counted)
        self._counted = lost
