"""Readings from memory while the source is in trouble, and how often it is asked then."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from controlplane.config import FuseSettings
from controlplane.errors import SourceUnreachable
from controlplane.model.health import FuseState
from controlplane.model.signals import Readings, Sample, SignalRequest
from controlplane.sources.cached import CachedSignals
from controlplane.sources.fuse import Fuse, FuseMetrics
from controlplane.sources.signal_metrics import SignalMetrics
from tests.support.signal_requests import signal_request

REQUEST = signal_request(("10.0.0.1:80",))


class Scripted:
    """A source that works or does not, as the test says; it is its own clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.is_up = True
        self.reads = 0
        self.unresolved: tuple[str, ...] = ("gpu_fault",)

    def clock(self) -> float:
        return self.now

    async def read(self, request: SignalRequest) -> Readings:
        self.reads += 1
        if not self.is_up:
            raise SourceUnreachable("prometheus", "refused")
        samples = (Sample("10.0.0.1:80", "running", 3.0, 0.5),)
        return Readings(request.service, self.now, samples, unresolved=self.unresolved, unmatched_series=2)


def cached(source: Scripted, registry: CollectorRegistry | None = None) -> CachedSignals:
    registry = registry or CollectorRegistry()
    fuse = Fuse(
        name="prometheus",
        settings=FuseSettings(degraded_after_failures=3, jitter_ratio=0),
        clock=source.clock,
        metrics=FuseMetrics(registry),
        random=lambda: 0.5,
    )
    return CachedSignals(source=source, fuse=fuse, clock=source.clock, metrics=SignalMetrics(registry))


@pytest.mark.fault("R4")
async def test_a_failing_source_gives_its_last_readings_which_keep_their_time() -> None:
    source = Scripted()
    signals = cached(source)
    good = await signals.read(REQUEST)
    source.is_up, source.now = False, 105.0
    held = await signals.read(REQUEST)
    assert held.samples == good.samples
    assert held.read_at_seconds == 100.0
    assert held.failures == ("from memory: refused",)


@pytest.mark.fault("R4")
async def test_while_degraded_the_source_is_asked_only_after_the_backoff() -> None:
    source = Scripted()
    signals = cached(source)
    await signals.read(REQUEST)
    source.is_up = False
    for _ in range(3):
        await signals.read(REQUEST)
    assert signals.health().state is FuseState.DEGRADED
    for _ in range(20):
        held = await signals.read(REQUEST)
    assert source.reads == 4
    assert held.failures == ("from memory: next try in 5 s",)
    source.now += 5.0
    source.is_up = True
    assert (await signals.read(REQUEST)).read_at_seconds == source.now
    assert signals.health().state is FuseState.NORMAL


async def test_with_nothing_to_remember_the_error_goes_on() -> None:
    source = Scripted()
    source.is_up = False
    with pytest.raises(SourceUnreachable, match="refused"):
        await cached(source).read(REQUEST)


async def test_services_are_remembered_apart() -> None:
    source = Scripted()
    signals = cached(source)
    await signals.read(REQUEST)
    source.is_up = False
    with pytest.raises(SourceUnreachable):
        await signals.read(signal_request(("10.0.0.2:80",), service="other"))


async def test_unresolved_signals_raise_a_gauge_that_falls_again_and_goes_with_its_service() -> None:
    source, registry = Scripted(), CollectorRegistry()
    signals = cached(source, registry)

    def gauge(signal: str) -> float | None:
        labels = {"service": "chat", "signal": signal}
        return registry.get_sample_value("trimtab_signal_unresolved", labels)

    await signals.read(REQUEST)
    assert gauge("gpu_fault") == 1
    assert registry.get_sample_value("trimtab_signal_unmatched_series", {"service": "chat"}) == 2
    source.unresolved = ("running",)
    await signals.read(REQUEST)
    assert gauge("gpu_fault") is None
    assert gauge("running") == 1
    source.now += 4000.0
    await signals.read(signal_request(("10.0.0.2:80",), service="other"))
    assert gauge("running") is None
    assert registry.get_sample_value("trimtab_signal_unmatched_series", {"service": "chat"}) is None
