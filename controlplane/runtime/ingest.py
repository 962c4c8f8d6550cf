"""The way in: keeps the newest of everything in latest-wins slots and says when one changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from controlplane.errors import SourceError
from controlplane.model.documents import Documents, TopologyOffer
from controlplane.model.signals import Readings, SignalRequest
from controlplane.runtime.supervisor import Supervisor
from controlplane.sources.ports import DocumentSource, SignalSource, TopologySource


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where everything comes from."""

    documents: DocumentSource
    topology: TopologySource
    signals: SignalSource


class Ingest:
    """Follows all sources. Memory is bounded by design: a newer value replaces the one before it."""

    def __init__(
        self,
        *,
        sources: Sources,
        interval_seconds: float,
        supervisor: Supervisor,
        on_change: Callable[[], None],
    ) -> None:
        """Read signals every `interval_seconds`; call `on_change` whenever a slot was filled."""
        self._sources = sources
        self._interval_seconds = interval_seconds
        self._supervisor = supervisor
        self._on_change = on_change
        self._log = structlog.get_logger("trimtab.ingest")
        self._documents: Documents | None = None
        self._offer: TopologyOffer | None = None
        self._readings: dict[str, Readings] = {}
        self._attempted: set[str] = set()
        self._services: frozenset[str] = frozenset()
        self._services_changed = asyncio.Event()
        self._requests: tuple[SignalRequest, ...] = ()
        self._demand_changed = asyncio.Event()

    @property
    def documents(self) -> Documents | None:
        """The newest documents; `None` until the store has answered."""
        return self._documents

    @property
    def offer(self) -> TopologyOffer | None:
        """The newest endpoints; `None` until discovery has answered."""
        return self._offer

    @property
    def readings(self) -> Mapping[str, Readings]:
        """The newest signals by service."""
        return MappingProxyType(self._readings)

    @property
    def attempted(self) -> frozenset[str]:
        """Services whose signals were asked for at least once."""
        return frozenset(self._attempted)

    def follow(self, services: frozenset[str]) -> None:
        """Say which services' endpoints are wanted."""
        if services != self._services:
            self._services = services
            self._services_changed.set()

    def demand(self, requests: tuple[SignalRequest, ...]) -> None:
        """Say which signals are wanted. What is new is read at once, not at the next interval."""
        if requests != self._requests:
            self._requests = requests
            self._demand_changed.set()
            wanted = {request.service for request in requests}
            self._readings = {name: found for name, found in self._readings.items() if name in wanted}

    async def run(self) -> None:
        """Follow all sources until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part, run in (
                ("documents", self._watch_documents),
                ("topology", self._watch_topology),
                ("signals", self._read_signals),
            ):
                group.create_task(self._supervisor.keep_running(part, run), name=part)

    async def _watch_documents(self) -> None:
        async for documents in self._sources.documents.watch():
            self._documents = documents
            self._on_change()

    async def _watch_topology(self) -> None:
        while True:
            self._services_changed.clear()
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow(self._services))
                await self._services_changed.wait()
                following.cancel()

    async def _follow(self, services: frozenset[str]) -> None:
        if not services:
            return
        async for offer in self._sources.topology.watch(services):
            self._offer = offer
            self._on_change()

    async def _read_signals(self) -> None:
        while True:
            self._demand_changed.clear()
            requests = self._requests
            async with asyncio.TaskGroup() as group:
                for request in requests:
                    group.create_task(self._read(request))
            if requests:
                self._on_change()
            try:
                async with asyncio.timeout(self._interval_seconds):
                    await self._demand_changed.wait()
            except TimeoutError:
                continue

    async def _read(self, request: SignalRequest) -> None:
        try:
            self._readings[request.service] = await self._sources.signals.read(request)
        except SourceError as error:
            # The last readings stay and age; the guards decide how long they count.
            self._log.debug("signals_missing", service=request.service, error=error.reason)
        self._attempted.add(request.service)
