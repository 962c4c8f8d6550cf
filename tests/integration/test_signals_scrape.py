"""Direct scraping over real HTTP: what single endpoints can do wrong, and what is remembered."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from controlplane.config import ScrapeSettings
from controlplane.errors import SourceMalformed, SourceUnreachable
from controlplane.model.signals import SignalRequest
from controlplane.model.strategy import SignalsSpec
from controlplane.sources.scrape import ScrapeSignals
from controlplane.sources.signal_metrics import SignalMetrics
from tests.support.exporter import Exporter, Load, envoy, exporter, vllm
from tests.support.process import free_port
from tests.support.signal_requests import ages, signal_request, values

HOSTS = ("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")


@dataclass(slots=True)
class Clock:
    """Monotonic time as the test says."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Bench:
    """Three endpoints on one exporter whose time is the clock's, and a scraper."""

    pages: Exporter
    source: ScrapeSignals
    clock: Clock
    registry: CollectorRegistry
    urls: list[str] = field(default_factory=list)

    def request(self, *, hosts: tuple[str, ...] = HOSTS, spec: SignalsSpec | None = None) -> SignalRequest:
        return signal_request(hosts, spec, urls=self.urls[: len(hosts)])

    def serve(self, place: int, load: Load) -> None:
        self.pages.pages[str(place)] = lambda _: vllm()(load, self.clock.now)


@contextlib.asynccontextmanager
async def bench(
    *, timeout_seconds: float = 1.0, concurrency: int = 64, max_bytes: int = 2_000_000, envoys: int = 0
) -> AsyncIterator[Bench]:
    clock, registry = Clock(), CollectorRegistry()
    async with exporter() as pages, aiohttp.ClientSession() as session:
        settings = ScrapeSettings(
            timeout_seconds=timeout_seconds,
            concurrency=concurrency,
            max_bytes=max_bytes,
            envoy_urls=tuple(pages.url(f"envoy/{number}") for number in range(envoys)),
        )
        source = ScrapeSignals(
            settings=settings, session=session, clock=clock, metrics=SignalMetrics(registry)
        )
        found = Bench(pages, source, clock, registry, [pages.url(str(place)) for place in range(3)])
        for place in range(3):
            found.serve(place, Load(running=place + 1))
        yield found


async def test_gauges_come_with_the_first_read_and_rates_with_the_second() -> None:
    async with bench() as it:
        first = await it.source.read(it.request())
        assert values(first)["running", HOSTS[1]] == 2
        assert "output_tokens_per_second" in first.unresolved
        it.clock.now += 5
        second = await it.source.read(it.request())
        assert values(second)["output_tokens_per_second", HOSTS[1]] == pytest.approx(900)
        assert second.unmatched_series == 0
        assert set(ages(second).values()) == {0.0}
        assert next(p for p in second.provenance if p.signal == "kv_usage_ratio").query == (
            "vllm:kv_cache_usage_perc | vllm:gpu_cache_usage_perc"
        )


@pytest.mark.fault("R5")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>Sign in</html>", "none of the engine's metrics on the page"),
        (b"vllm:num_requests_running one\n", "not in the Prometheus text format"),
        (b"vllm:num_requests_running{" + b'"' * 9000 + b"\n", "a line of 9026 characters"),
        (b"\xff" * 100, "not UTF-8 text"),
        (b"#" * 3_000_000, "a page above 2000000 bytes"),
        (b"", "none of the engine's metrics on the page"),
    ],
)
async def test_a_hostile_page_fails_its_endpoint_and_no_other(body: bytes, reason: str) -> None:
    async with bench() as it:
        it.pages.pages["1"] = lambda _: body
        readings = await it.source.read(it.request())
        assert readings.failures == (f"{HOSTS[1]}: {reason}",)
        assert {sample.endpoint for sample in readings.samples} == {HOSTS[0], HOSTS[2]}


@pytest.mark.fault("R6")
async def test_an_endpoint_that_fails_keeps_its_last_values_and_they_age() -> None:
    async with bench() as it:
        await it.source.read(it.request())
        it.clock.now += 5
        await it.source.read(it.request())
        del it.pages.pages["2"]
        it.clock.now += 7
        readings = await it.source.read(it.request())
        assert readings.failures == (f"{HOSTS[2]}: HTTP status 404",)
        assert values(readings)["running", HOSTS[2]] == 3
        assert ages(readings)["output_tokens_per_second", HOSTS[2]] == pytest.approx(7)
        assert ages(readings)["running", HOSTS[0]] == 0


@pytest.mark.fault("R4")
async def test_all_endpoints_down_is_an_error_and_says_which_kind() -> None:
    async with bench() as it:
        it.pages.pages.clear()
        with pytest.raises(SourceMalformed, match="none of 3 endpoints gave metrics: HTTP status 404"):
            await it.source.read(it.request())
        it.urls = [f"http://127.0.0.1:{free_port()}/metrics"] * 3
        with pytest.raises(SourceUnreachable):
            await it.source.read(it.request())
        it.urls = ["", "not a url", "ftp://127.0.0.1/x"]
        with pytest.raises(SourceUnreachable):
            await it.source.read(it.request())


async def test_a_service_without_endpoints_reads_as_nothing() -> None:
    async with bench() as it:
        readings = await it.source.read(it.request(hosts=()))
        assert (readings.samples, readings.failures) == ((), ())


@pytest.mark.fault("R4")
async def test_endpoints_that_hang_cost_one_deadline_and_come_last_the_next_time() -> None:
    hosts = tuple(f"10.0.1.{number}:80" for number in range(12))
    with hanging() as address:
        async with bench(timeout_seconds=0.2, concurrency=2) as it:
            urls = [f"http://{address}/metrics"] * 10 + it.urls[:2]
            started = time.monotonic()
            with pytest.raises(SourceUnreachable):
                await it.source.read(signal_request(hosts, urls=urls))
            readings = await it.source.read(
                signal_request((*hosts, "10.0.1.99:80"), urls=[*urls, it.urls[2]])
            )
            assert time.monotonic() - started < 1.2
            assert {sample.endpoint for sample in readings.samples} == {"10.0.1.99:80"}
            assert len(readings.failures) == 12


@contextlib.contextmanager
def hanging() -> Iterator[str]:
    """Let the kernel take connections that nobody will ever accept."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield "{}:{}".format(*listener.getsockname())


async def test_endpoints_and_services_that_are_gone_are_forgotten() -> None:
    async with bench() as it:
        for _ in range(3):
            await it.source.read(it.request())
            it.clock.now += 5
        await it.source.read(it.request(hosts=HOSTS[:1]))
        back = await it.source.read(it.request())
        assert ("output_tokens_per_second", HOSTS[1]) not in values(back)
        it.clock.now += 1000
        await it.source.read(signal_request(HOSTS[:1], urls=it.urls[:1], service="other"))
        assert list(it.source._services) == ["other"]


async def test_another_window_or_engine_starts_over() -> None:
    async with bench() as it:
        for _ in range(3):
            await it.source.read(it.request())
            it.clock.now += 5
        readings = await it.source.read(it.request(spec=SignalsSpec(window_seconds=30)))
        assert ("output_tokens_per_second", HOSTS[0]) not in values(readings)


async def test_the_selector_applies_to_labels_that_the_page_has() -> None:
    async with bench() as it:
        it.pages.pages["0"] = lambda _: (
            'vllm:num_requests_running{model_name="a"} 3\nvllm:num_requests_running{model_name="b"} 4\n'
        )
        spec = SignalsSpec(selector={"model_name": "a", "job": "attached-by-prometheus"})
        readings = await it.source.read(it.request(hosts=HOSTS[:1], spec=spec))
        assert values(readings) == {("running", HOSTS[0]): 3}


async def test_envoys_counts_are_summed_and_one_that_is_silent_leaves_the_others() -> None:
    async with bench(envoys=2) as it:
        for number in range(2):
            it.pages.pages[f"envoy/{number}"] = lambda _: envoy(
                {HOSTS[0]: (40, 10), "10.9.9.9:1": (7, 7)}, it.clock.now
            )
        for _ in range(3):
            readings = await it.source.read(it.request())
            it.clock.now += 5
        found = values(readings)
        assert found["requests_per_second", HOSTS[0]] == pytest.approx(100)
        assert found["errors_per_second", HOSTS[0]] == pytest.approx(20)
        assert ("requests_per_second", HOSTS[1]) not in found
        assert readings.unmatched_series == 0
        # Other services' endpoints on the same Envoy take no memory.
        windows = it.source._services["chat"]._envoys
        assert {endpoint for _, endpoint in windows} == {HOSTS[0]}
        del it.pages.pages["envoy/1"]
        silent = await it.source.read(it.request())
        assert values(silent)["requests_per_second", HOSTS[0]] == pytest.approx(100)
        assert ages(silent)["requests_per_second", HOSTS[0]] == 0
        assert silent.failures == (f"envoy {it.pages.address}: HTTP status 404",)
        for _ in range(13):
            it.clock.now += 5
            silent = await it.source.read(it.request())
        assert values(silent)["requests_per_second", HOSTS[0]] == pytest.approx(50)


async def test_services_read_together_share_one_scrape_of_each_envoy() -> None:
    async with bench(envoys=1) as it:
        it.pages.pages["envoy/0"] = lambda _: envoy({HOSTS[0]: (1, 1), HOSTS[1]: (2, 2)}, it.clock.now)
        for _ in range(2):
            before = it.pages.requests
            readings = await asyncio.gather(
                *(
                    it.source.read(signal_request([host], urls=[url], service=host))
                    for host, url in zip(HOSTS, it.urls, strict=True)
                )
            )
            assert it.pages.requests - before == 4
            it.clock.now += 5
        assert values(readings[1])["requests_per_second", HOSTS[1]] == pytest.approx(4)


async def test_outcomes_are_counted() -> None:
    async with bench() as it:
        del it.pages.pages["0"]
        await it.source.read(it.request())

        def count(outcome: str) -> float | None:
            labels = {"source": "scrape", "outcome": outcome}
            return it.registry.get_sample_value("trimtab_signal_requests_total", labels)

        assert (count("ok"), count("status")) == (2, 1)
