"""The last good readings, while their source is in trouble."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controlplane.errors import SourceError, SourceUnreachable
from controlplane.model.health import SourceHealth
from controlplane.model.signals import Readings, SignalRequest
from controlplane.sources.fuse import Fuse
from controlplane.sources.ports import SignalSource
from controlplane.sources.signal_metrics import SignalMetrics

_FORGET_SECONDS = 3600.0
"""Readings older than this are of no use to anybody, and a service may be gone for good."""


class CachedSignals:
    """A signal source that always answers from memory when it cannot from the world.

    Implements `controlplane.sources.ports.SignalSource`. While the fuse is degraded the inner
    source is asked only as often as the fuse's backoff allows. What comes from memory keeps its
    `read_at_seconds`, so that it ages, and says so in `failures`.
    """

    def __init__(
        self,
        *,
        source: SignalSource,
        fuse: Fuse,
        clock: Callable[[], float],
        metrics: SignalMetrics,
    ) -> None:
        """`clock` gives monotonic seconds."""
        self._source = source
        self._fuse = fuse
        self._clock = clock
        self._metrics = metrics
        self._last: dict[str, Readings] = {}
        self._shown: dict[str, set[str]] = {}

    async def read(self, request: SignalRequest) -> Readings:
        """Read from the source, or give the last readings of the service.

        Raises:
            SourceError: if the source fails and there is nothing to fall back on.
        """
        self._forget()
        if not self._fuse.may_try():
            error: SourceError = SourceUnreachable(
                self._fuse.name, f"next try in {self._fuse.delay_seconds():.0f} s"
            )
        else:
            try:
                readings = await self._source.read(request)
            except SourceError as failure:
                self._fuse.record_failure(failure.reason)
                error = failure
            else:
                self._fuse.record_success()
                self._last[request.service] = readings
                self._show(readings)
                return readings
        last = self._last.get(request.service)
        if last is None:
            raise error
        return replace(last, failures=(*last.failures, f"from memory: {error.reason}"))

    def health(self) -> SourceHealth:
        """Tell how the source is doing."""
        return self._fuse.health()

    def _show(self, readings: Readings) -> None:
        service = readings.service
        self._metrics.unmatched.labels(service=service).set(readings.unmatched_series)
        unresolved = set(readings.unresolved)
        for signal in self._shown.get(service, set()) - unresolved:
            self._metrics.unresolved.remove(service, signal)
        for signal in unresolved:
            self._metrics.unresolved.labels(service=service, signal=signal).set(1)
        self._shown[service] = unresolved

    def _forget(self) -> None:
        """Drop services that were last read long ago, with their metrics."""
        now = self._clock()
        old = [name for name, last in self._last.items() if now - last.read_at_seconds > _FORGET_SECONDS]
        for service in old:
            del self._last[service]
            self._metrics.unmatched.remove(service)
            for signal in self._shown.pop(service):
                self._metrics.unresolved.remove(service, signal)
