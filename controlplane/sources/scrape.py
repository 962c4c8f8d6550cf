"""Signals without Prometheus: the endpoints' own metrics pages, and Envoys' request counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

import aiohttp
import structlog

from controlplane.config import ScrapeSettings
from controlplane.errors import SourceMalformed, SourceUnreachable
from controlplane.model.signals import Provenance, Readings, SignalRequest
from controlplane.model.topology import EndpointId
from controlplane.sources.answers import Failed, Outcome
from controlplane.sources.assembly import Assembly
from controlplane.sources.exposition import Point, parse
from controlplane.sources.fetch import PageFetcher
from controlplane.sources.measures import metric_names
from controlplane.sources.signal_metrics import SignalMetrics
from controlplane.sources.targets import ServiceTargets, is_gap

_SOURCE = "scrape"
_PARSE_ON_LOOP_BYTES = 256 * 1024
"""A larger page is parsed on a thread, so that the event loop stays free for Envoys."""

_ENVOY_REUSE_SECONDS = 1.0
"""Services that are read within this time share one scrape of each Envoy."""

_FORGET_SECONDS = 900.0
"""A service that is not read for this long is forgotten."""


class ScrapeSignals:
    """Reads signals straight from the endpoints.

    Implements `controlplane.sources.ports.SignalSource`. Rates need two reads, so the first one has
    gauges only. An endpoint whose scrape fails keeps its last values, which age: they are dropped
    when they are stale, as the strategy says.
    """

    def __init__(
        self,
        *,
        settings: ScrapeSettings,
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
        metrics: SignalMetrics,
    ) -> None:
        """`clock` gives monotonic seconds; `session` stays the caller's to close."""
        self._settings = settings
        self._fetcher = PageFetcher(settings=settings, session=session)
        self._clock = clock
        self._metrics = metrics
        self._services: dict[str, ServiceTargets] = {}
        self._envoy_pages: dict[str, tuple[float, tuple[Point, ...] | Failed]] = {}
        self._envoy_urls = tuple(dict.fromkeys(settings.envoy_urls))
        self._envoy_locks = {url: asyncio.Lock() for url in self._envoy_urls}
        self._log = structlog.get_logger().bind(source=_SOURCE)

    async def read(self, request: SignalRequest) -> Readings:
        """Scrape every endpoint once, and compute signals over the window.

        The read as a whole takes at most twice the timeout of one scrape, however many endpoints
        hang; those not reached by then count as failed.

        Raises:
            SourceUnreachable: if there are endpoints and no page at all was fetched.
            SourceMalformed: if pages were fetched and none was usable.
        """
        service = self._service(request)
        targets = service.follow(request, self._envoy_urls)
        with self._metrics.seconds.labels(source=_SOURCE).time():
            failures, envoy_failures = await self._scrape(service, targets)
        for endpoint in failures:
            service.fail(endpoint)
        has_envoys = len(envoy_failures) < len(self._envoy_urls)
        if targets and len(failures) == len(targets) and not has_envoys:
            raise _nothing(failures)
        service.read_at_seconds = self._clock()
        assembly = _assemble(request, service)
        for name, failure in sorted(failures.items()):
            assembly.fail(f"{name}: {failure.reason}")
        for url, failure in sorted(envoy_failures.items()):
            assembly.fail(f"{_shown(url)}: {failure.reason}")
        return assembly.readings(service.read_at_seconds)

    def _service(self, request: SignalRequest) -> ServiceTargets:
        """Find the service's windows, start over if its strategy changed them, and forget old ones."""
        now = self._clock()
        self._services = {
            name: kept
            for name, kept in self._services.items()
            if name == request.service or now - kept.read_at_seconds < _FORGET_SECONDS
        }
        service = self._services.get(request.service)
        if service is None or not service.fits(request):
            service = self._services[request.service] = ServiceTargets.of(request)
        service.read_at_seconds = now
        return service

    async def _scrape(
        self, service: ServiceTargets, targets: list[tuple[EndpointId, str]]
    ) -> tuple[dict[str, Failed], dict[str, Failed]]:
        late = Failed(Outcome.TIMEOUT, "not reached before the deadline")
        failures: dict[str, Failed] = dict.fromkeys((endpoint for endpoint, _ in targets), late)
        envoy_failures: dict[str, Failed] = dict.fromkeys(self._envoy_urls, late)
        try:
            async with asyncio.timeout(2 * self._settings.timeout_seconds), asyncio.TaskGroup() as group:
                for url in self._envoy_urls:
                    group.create_task(self._scrape_envoy(service, url, envoy_failures))
                for endpoint, url in targets:
                    group.create_task(self._scrape_endpoint(service, endpoint, url, failures))
        except TimeoutError:
            self._log.warning("read_deadline", missing=sum(found is late for found in failures.values()))
        return failures, envoy_failures

    async def _scrape_endpoint(
        self, service: ServiceTargets, endpoint: EndpointId, url: str, failures: dict[str, Failed]
    ) -> None:
        points = await self._page(url, service.metrics)
        if isinstance(points, Failed):
            failures[endpoint] = points
            return
        service.observe(endpoint, self._clock(), points)
        del failures[endpoint]

    async def _scrape_envoy(self, service: ServiceTargets, url: str, failures: dict[str, Failed]) -> None:
        async with self._envoy_locks[url]:
            at_seconds, points = self._envoy_pages.get(url, (-_ENVOY_REUSE_SECONDS, ()))
            if self._clock() - at_seconds >= _ENVOY_REUSE_SECONDS:
                points = await self._page(url, service.envoy_metrics, may_be_empty=True)
                at_seconds = self._clock()
                self._envoy_pages[url] = (at_seconds, points)
        if isinstance(points, Failed):
            failures[url] = points
            return
        service.observe_envoy(url, at_seconds, points)
        del failures[url]

    async def _page(
        self, url: str, wanted: frozenset[str], *, may_be_empty: bool = False
    ) -> tuple[Point, ...] | Failed:
        body = await self._fetcher.fetch(url)
        if isinstance(body, Failed):
            points: tuple[Point, ...] | Failed = body
        elif len(body) > _PARSE_ON_LOOP_BYTES:
            points = await asyncio.to_thread(parse, body, wanted)
        else:
            points = parse(body, wanted)
        if not points and not may_be_empty:
            points = Failed(Outcome.MALFORMED, "none of the engine's metrics on the page")
        outcome = points.outcome if isinstance(points, Failed) else Outcome.OK
        self._metrics.requests.labels(source=_SOURCE, outcome=outcome.value).inc()
        return points


def _assemble(request: SignalRequest, service: ServiceTargets) -> Assembly:
    assembly = Assembly(request)
    for entry, cells in service.answers(service.read_at_seconds):
        names = " | ".join(" + ".join(metric_names(measure.expression)) for measure in entry.measures)
        assembly.explain(Provenance(entry.signal, _SOURCE, names))
        if cells:
            assembly.resolve(entry.signal)
        assembly.add(entry.signal, [cell for cell in cells if not is_gap(entry, cell.value)])
    for name in sorted(request.spec.custom):
        assembly.fail(f"{name}: a custom query needs Prometheus")
    return assembly


def _nothing(failures: dict[str, Failed]) -> SourceUnreachable | SourceMalformed:
    reasons = ", ".join(sorted({failure.reason for failure in failures.values()}))
    reason = f"none of {len(failures)} endpoints gave metrics: {reasons}"
    silent = {Outcome.TIMEOUT, Outcome.UNREACHABLE}
    if all(failure.outcome in silent for failure in failures.values()):
        return SourceUnreachable(_SOURCE, reason)
    return SourceMalformed(_SOURCE, reason)


def _shown(url: str) -> str:
    """Name an Envoy in messages, without what a URL may hide before the host."""
    return f"envoy {urlsplit(url).netloc.rpartition('@')[2]}"
