"""The sources, asked once each, as `trimtab serve` would ask them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import TypeVar

import aiohttp
from prometheus_client import CollectorRegistry

from controlplane.cli.preflight.finding import Finding, Mark
from controlplane.cli.preflight.judge import (
    document_hint,
    judge_documents,
    judge_signals,
    judge_silence,
    judge_topology,
    topology_hint,
)
from controlplane.config import Settings
from controlplane.errors import SourceError
from controlplane.model.signals import SignalRequest
from controlplane.model.strategy import Strategy
from controlplane.model.topology import ServiceTopology, Topology
from controlplane.sources.blocking_watch import Retry
from controlplane.sources.consul_catalog import ConsulTopology
from controlplane.sources.consul_client import ConsulClient
from controlplane.sources.consul_kv import ConsulDocuments
from controlplane.sources.file_topology import FileTopology
from controlplane.sources.files import DirectoryDocuments
from controlplane.sources.fuse import Fuse, FuseMetrics
from controlplane.sources.ports import DocumentSource, SignalSource, TopologySource
from controlplane.sources.preflight import inspect
from controlplane.sources.prometheus import PrometheusSignals
from controlplane.sources.scrape import ScrapeSignals
from controlplane.sources.signal_metrics import SignalMetrics

T = TypeVar("T")

SCRAPE_PAUSE_SECONDS = 1.0
"""A scraping source has rates only from the second read on."""


async def check_peers(settings: Settings, *, timeout_seconds: float) -> list[Finding]:
    """Ask documents, then discovery, then signals; each gets `timeout_seconds` to answer."""
    async with AsyncExitStack() as stack:
        return await _Peers(settings, timeout_seconds, stack).check()


class _Peers:
    """The sources that the settings name, with a registry of their own."""

    def __init__(self, settings: Settings, timeout_seconds: float, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._timeout_seconds = timeout_seconds
        self._stack = stack
        self._registry = CollectorRegistry()
        self._fuses = FuseMetrics(self._registry)

    async def check(self) -> list[Finding]:
        """Go on as far as answers reach: signals need endpoints, which need strategies."""
        kind = self._settings.sources.documents
        source = self._documents()
        documents = await self._first(source.watch())
        if documents is None:
            return [judge_silence(f"documents ({kind})", source.health(), document_hint(self._settings))]
        strategies, findings = judge_documents(documents, kind)
        if not strategies:
            return findings
        discovery = self._topology()
        offer = await self._first(discovery.watch(frozenset(strategies)))
        if offer is None:
            subject = f"endpoints ({self._settings.sources.topology})"
            return [
                *findings,
                judge_silence(subject, discovery.health(), topology_hint(self._settings)),
            ]
        findings += judge_topology(offer.topology, strategies)
        return findings + await self._check_signals(offer.topology, strategies)

    async def _check_signals(self, topology: Topology, strategies: Mapping[str, Strategy]) -> list[Finding]:
        source, pause_seconds = await self._signals()
        findings: list[Finding] = []
        for service, strategy in sorted(strategies.items()):
            found = topology.get(service)
            if found is None or not found.endpoints:
                continue
            try:
                survey = await inspect(source, request_of(found, strategy), pause_seconds=pause_seconds)
            except SourceError as error:
                findings.append(Finding(Mark.BAD, f"signals of {service}", str(error)))
            else:
                findings += judge_signals(survey)
        return findings

    async def _first(self, items: AsyncIterator[T]) -> T | None:
        """Wait for what a source says first; `None` if it says nothing in time."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await anext(items)
        except TimeoutError:
            return None
        finally:
            close = getattr(items, "aclose", None)  # a generator holds its connection until closed
            if close is not None:
                await close()

    def _documents(self) -> DocumentSource:
        settings, fuse = self._settings, self._fuse("documents")
        if settings.sources.documents == "directory":
            return DirectoryDocuments(root=settings.sources.directory, fuse=fuse)
        prefix = settings.consul.prefix
        return ConsulDocuments(client=self._consul(), prefix=prefix, fuse=fuse, retry=self._retry())

    def _topology(self) -> TopologySource:
        settings, fuse = self._settings, self._fuse("topology")
        if settings.sources.topology == "file":
            return FileTopology(file=settings.sources.endpoints_file, fuse=fuse)
        return ConsulTopology(client=self._consul(), fuse=fuse, retry=self._retry())

    async def _signals(self) -> tuple[SignalSource, float]:
        """Make the signal source; gives also how long to pause between two reads."""
        settings, metrics = self._settings, SignalMetrics(self._registry)
        clock = time.monotonic
        if settings.sources.signals == "prometheus":
            prometheus = PrometheusSignals(settings=settings.prometheus, clock=clock, metrics=metrics)
            self._stack.callback(prometheus.close)
            return prometheus, 0.0
        jar = aiohttp.DummyCookieJar()
        session = await self._stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        scrape = ScrapeSignals(settings=settings.scrape, session=session, clock=clock, metrics=metrics)
        return scrape, SCRAPE_PAUSE_SECONDS

    def _fuse(self, name: str) -> Fuse:
        return Fuse(
            name=name,
            settings=self._settings.fuse,
            clock=time.monotonic,
            metrics=self._fuses,
            random=random.random,
        )

    def _consul(self) -> ConsulClient:
        client = ConsulClient(settings=self._settings.consul)
        self._stack.push_async_callback(client.close)
        return client

    def _retry(self) -> Retry:
        consul = self._settings.consul
        return Retry(
            minimum_seconds=consul.retry_min_seconds,
            maximum_seconds=consul.retry_max_seconds,
            clock=time.monotonic,
            random=random.random,
        )


def request_of(topology: ServiceTopology, strategy: Strategy) -> SignalRequest:
    """Ask for a service's signals as the control loop does."""
    endpoints, spec = topology.endpoints, strategy.signals
    label = spec.join_endpoint_label
    return SignalRequest(
        service=topology.service,
        endpoints=topology.ids,
        metrics_urls=tuple(each.metrics_url or f"http://{each.id}/metrics" for each in endpoints),
        spec=spec,
        join_values=tuple(each.attribute(label) for each in endpoints) if spec.join == "label" else (),
    )
