"""Signals from a real Prometheus, and the same ones scraped directly from the same pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from controlplane.config import FuseSettings, PrometheusSettings, ScrapeSettings
from controlplane.errors import SourceUnreachable
from controlplane.model.health import FuseState
from controlplane.model.problems import Rejected
from controlplane.model.signals import Readings, Signal, SignalRequest
from controlplane.model.strategy import Engine, SignalsSpec
from controlplane.sources.cached import CachedSignals
from controlplane.sources.fuse import Fuse, FuseMetrics
from controlplane.sources.preflight import inspect
from controlplane.sources.prometheus import PrometheusSignals
from controlplane.sources.promql import plan
from controlplane.sources.scrape import ScrapeSignals
from controlplane.sources.signal_metrics import SignalMetrics
from tests.support.exporter import Exporter, Load, Page, envoy, exporter, sglang, tgi, triton, vllm
from tests.support.process import eventually
from tests.support.prometheus_server import PrometheusServer, Target, prometheus_server
from tests.support.signal_requests import ages, signal_request, values

pytestmark = [pytest.mark.prometheus, pytest.mark.asyncio(loop_scope="module")]

WINDOW_SECONDS = 4.0
PAGES: dict[Engine, list[Page]] = {
    "vllm": [vllm("new"), vllm("old"), vllm("both")],
    "sglang": [sglang] * 3,
    "tgi": [tgi] * 3,
    "triton": [triton] * 3,
}
LOADS = [
    Load(running=2, requests_per_second=10),
    Load(running=4, requests_per_second=20, hit_ratio=0.75, shares=(0.0, 0.1, 0.4, 0.4, 0.1)),
    Load(running=6, waiting=9, requests_per_second=40, kv_ratio=0.9),
]
# Per engine: what the first endpoint must show, by the load's own numbers.
EXPECTED: dict[Engine, dict[str, float]] = {
    "vllm": {
        "running": 2,
        "waiting": 1,
        "kv_usage_ratio": 0.5,
        "cache_hit_ratio": 0.25,
        "errors_per_second": 1,
    },
    "sglang": {"running": 2, "waiting": 1, "kv_usage_ratio": 0.5, "cache_hit_ratio": 0.25},
    "tgi": {"running": 2, "waiting": 1, "output_tokens_per_second": 900},
    "triton": {"running": 2, "waiting": 1, "latency_p50_seconds": 0.3, "gpu_utilization_ratio": 0.75},
}
COMMON = {
    "good_requests_per_second": 10.0,
    "requests_per_second": 10.0,
    "window_requests": 10 * WINDOW_SECONDS,
}


FROM_DCGM: dict[Engine, set[Signal]] = {
    engine: {Signal.GPU_FAULT, Signal.GPU_MEMORY_RATIO, Signal.GPU_UTILIZATION_RATIO} for engine in PAGES
} | {"triton": set()}
DCGM_PAGE = """\
DCGM_FI_DEV_GPU_UTIL{gpu="0"} 40
DCGM_FI_DEV_GPU_UTIL{gpu="1"} 80
DCGM_FI_DEV_FB_USED{gpu="0"} 30
DCGM_FI_DEV_FB_FREE{gpu="0"} 10
DCGM_FI_DEV_XID_ERRORS{gpu="0"} 79
"""
DATED = "10.9.0.1:8000"
"""A target of whose two gauges one carries a timestamp 90 seconds old."""


def endpoints(engine: Engine) -> list[str]:
    return [f"10.{list(PAGES).index(engine)}.0.{number}:8000" for number in range(1, 4)]


@dataclass(frozen=True, slots=True)
class World:
    """A Prometheus and a scraper that have watched the same pages for the same time."""

    pages: Exporter
    server: PrometheusServer
    session: aiohttp.ClientSession
    targets: int
    asked: dict[Engine, Readings] = field(default_factory=dict)
    scraped: dict[Engine, Readings] = field(default_factory=dict)

    def request(self, engine: Engine, spec: SignalsSpec | None = None) -> SignalRequest:
        spec = spec or SignalsSpec(engine=engine, window_seconds=WINDOW_SECONDS, selector={"job": "test"})
        urls = [self.pages.url(f"{engine}/{place}") for place in range(3)]
        return signal_request(endpoints(engine), spec, urls=urls)

    def prometheus(self, *, url: str = "", timeout_seconds: float = 5.0) -> PrometheusSignals:
        return PrometheusSignals(
            settings=PrometheusSettings(url=url or self.server.url, timeout_seconds=timeout_seconds),
            clock=time.monotonic,
            metrics=SignalMetrics(CollectorRegistry()),
        )

    def scrape(self) -> ScrapeSignals:
        return ScrapeSignals(
            settings=ScrapeSettings(envoy_urls=(self.pages.url("envoy/a"), self.pages.url("envoy/b"))),
            session=self.session,
            clock=time.monotonic,
            metrics=SignalMetrics(CollectorRegistry()),
        )

    async def watch(self, engine: Engine) -> None:
        """Let both see a full window, then read both."""
        request, scraper = self.request(engine), self.scrape()
        filled = f'sum by (job) (count_over_time(up{{job="test"}}[4s])) >= {19 * self.targets}'
        while not await self.server.query(filled):
            await scraper.read(request)
            await asyncio.sleep(0.2)
        for _ in range(round(WINDOW_SECONDS / 0.2)):
            await scraper.read(request)
            await asyncio.sleep(0.2)
        self.asked[engine], self.scraped[engine] = await asyncio.gather(
            self.ask(request), scraper.read(request)
        )

    async def ask(self, request: SignalRequest) -> Readings:
        source = self.prometheus()
        try:
            return await source.read(request)
        finally:
            source.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with exporter() as pages, aiohttp.ClientSession() as session:
        targets = publish(pages)
        directory = tmp_path_factory.mktemp("prometheus")
        async with prometheus_server(directory, targets) as server, asyncio.timeout(60):
            found = World(pages, server, session, len(targets))
            await asyncio.gather(*(found.watch(engine) for engine in PAGES))
            yield found


def publish(pages: Exporter) -> list[Target]:
    """Serve every page, and say where Prometheus finds it."""
    targets = []
    for engine, written in PAGES.items():
        for place, (endpoint, page, load) in enumerate(zip(endpoints(engine), written, LOADS, strict=True)):
            pages.add(f"{engine}/{place}", page, load)
            targets.append(Target(pages.address, f"/{engine}/{place}", {"instance": endpoint}))
    # Two Envoys share every endpoint's requests, a tenth of which fail.
    rates = {
        endpoint: (load.requests_per_second * 0.45, load.requests_per_second * 0.05)
        for engine in PAGES
        for endpoint, load in zip(endpoints(engine), LOADS, strict=True)
    }
    for name in ("a", "b"):
        pages.pages[f"envoy/{name}"] = lambda seconds: envoy(rates, seconds)
        targets.append(Target(pages.address, f"/envoy/{name}", {"instance": f"envoy-{name}:9901"}))
    pages.pages["dcgm"] = lambda _: DCGM_PAGE
    targets.append(Target(pages.address, "/dcgm", {"instance": "10.0.0.1:9400"}))
    then = round((time.time() - 90) * 1000)
    pages.pages["dated"] = lambda _: f"vllm:num_requests_running 3\nvllm:num_requests_waiting 5 {then}\n"
    targets.append(Target(pages.address, "/dated", {"instance": DATED}))
    return targets


@pytest.mark.parametrize("engine", list(PAGES))
async def test_prometheus_and_direct_scraping_agree(world: World, engine: Engine) -> None:
    asked, scraped = world.asked[engine], world.scraped[engine]
    assert asked.failures == scraped.failures == ()
    from_engine = {key: value for key, value in values(asked).items() if key[0] not in FROM_DCGM[engine]}
    assert set(values(scraped)) == set(from_engine)
    for key, value in values(scraped).items():
        assert values(asked)[key] == pytest.approx(value, rel=0.06, abs=slack(key[0])), key


@pytest.mark.parametrize("engine", list(PAGES))
async def test_what_is_read_is_what_the_engine_does(world: World, engine: Engine) -> None:
    for signal, expected in (COMMON | EXPECTED[engine]).items():
        found = values(world.asked[engine])[signal, endpoints(engine)[0]]
        assert found == pytest.approx(expected, rel=0.06, abs=slack(signal)), signal


def slack(signal: str) -> float:
    """Envoys count whole requests, which is coarse over a window of seconds."""
    return 1.2 if signal in {Signal.REQUESTS_PER_SECOND, Signal.ERRORS_PER_SECOND} else 0.0


async def test_old_names_new_names_and_both_mean_the_same(world: World) -> None:
    new, old, both = endpoints("vllm")
    for readings in (world.asked["vllm"], world.scraped["vllm"]):
        found = values(readings)
        assert found["kv_usage_ratio", new] == found["kv_usage_ratio", old] == 0.5
        assert found["kv_usage_ratio", both] == 0.9
        assert found["cache_hit_ratio", old] == pytest.approx(0.75)
        # The same page shape under the old name gives the same quantile as the others' TTFT.
        for endpoint in (new, old, both):
            ttft = found["ttft_p90_seconds", endpoint]
            assert found["inter_token_p90_seconds", endpoint] == pytest.approx(ttft, rel=0.02)


@pytest.mark.parametrize("engine", list(PAGES))
async def test_a_real_prometheus_takes_every_query_whatever_the_labels_hold(
    world: World, engine: Engine
) -> None:
    nasty = 'a"} or up{x="\\ \n\t\x00 ☃ \x7f{{'
    planned = plan(SignalsSpec(engine=engine, selector={"job": nasty}))
    assert not isinstance(planned, Rejected)
    for query in planned:
        rows = await world.server.query(query.text)
        assert rows == [] or query.group != "engine"


@pytest.mark.fault("R4")
async def test_a_sample_is_as_old_as_its_own_timestamp_says(world: World) -> None:
    spec = SignalsSpec(custom={"mine": "vllm:num_requests_waiting", "sum": "sum by (instance) (up)"})
    readings = await world.ask(signal_request([DATED], spec))
    assert ages(readings)["running", DATED] < 2
    assert 85 < ages(readings)["waiting", DATED] < 150
    assert ages(readings)["mine", DATED] == pytest.approx(ages(readings)["waiting", DATED], abs=1)
    assert ages(readings)["sum", DATED] == 0


async def test_gpus_join_to_the_one_engine_on_their_host(world: World) -> None:
    found = values(world.asked["vllm"])
    alone = endpoints("vllm")[0]
    assert found["gpu_utilization_ratio", alone] == pytest.approx(0.8)
    assert found["gpu_memory_ratio", alone] == pytest.approx(0.75)
    assert found["gpu_fault", alone] == 79
    assert ("gpu_fault", endpoints("vllm")[1]) not in found


@pytest.mark.fault("R6")
async def test_strangers_and_gaps_are_named(world: World) -> None:
    spec = SignalsSpec(custom={"broken": "sum by (", "one": "1", "none": "no_such_metric"})
    request = signal_request([endpoints("vllm")[0], "10.0.0.77:8000"], spec)
    source = world.prometheus()
    report = await inspect(source, request)
    source.close()
    rows = {row.signal: row for row in report.coverage}
    assert rows["running"].endpoints == 1
    assert not rows["none"].is_found
    assert report.endpoints_without_series == ("10.0.0.77:8000",)
    assert set(report.unmatched) == {DATED, *endpoints("vllm")[1:]}
    assert report.failures == (
        "broken: HTTP Status Code 400",
        "one: a result that is not a vector of samples",
    )
    assert not report.is_usable


@pytest.mark.fault("R4")
async def test_a_target_that_is_gone_leaves_no_values_behind(world: World) -> None:
    gone = endpoints("tgi")[2]
    del world.pages.pages["tgi/2"]

    async def is_forgotten() -> bool:
        readings = await world.ask(world.request("tgi"))
        own = {signal for signal, endpoint in values(readings) if endpoint == gone}
        return own <= {Signal.REQUESTS_PER_SECOND, Signal.ERRORS_PER_SECOND}  # those are Envoy's

    await eventually(is_forgotten)


@pytest.mark.fault("R4")
async def test_a_prometheus_that_dies_is_an_error_in_time_then_a_blown_fuse(
    world: World, tmp_path: Path
) -> None:
    async with prometheus_server(tmp_path / "other", []) as server:
        registry = CollectorRegistry()
        source = world.prometheus(url=server.url, timeout_seconds=1.0)
        fuse = Fuse(
            name="prometheus",
            settings=FuseSettings(degraded_after_failures=2),
            clock=time.monotonic,
            metrics=FuseMetrics(registry),
            random=lambda: 0.5,
        )
        cached = CachedSignals(
            source=source, fuse=fuse, clock=time.monotonic, metrics=SignalMetrics(registry)
        )
        request = world.request("vllm")
        held = await cached.read(request)
        assert held.samples == ()
        await server.kill()
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(SourceUnreachable):
                await source.read(request)
            assert time.monotonic() - started < 1.5
            assert (await cached.read(request)).read_at_seconds == held.read_at_seconds
        assert cached.health().state is FuseState.DEGRADED
        source.close()
