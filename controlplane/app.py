"""The composition root: the only place where concrete classes are joined."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp
import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from controlplane.config import Settings
from controlplane.errors import SettingsError
from controlplane.model.health import SourceHealth
from controlplane.model.plan import ListenerPlan
from controlplane.ops.admin import AdminServer
from controlplane.ops.logging import configure_logging
from controlplane.ops.metrics import StateCollector
from controlplane.runtime.clock import SystemClock, jitter
from controlplane.runtime.ingest import Ingest, Sources
from controlplane.runtime.instruments import Instruments
from controlplane.runtime.journal import Journal, Stores, restore
from controlplane.runtime.loop import ControlLoop, Parts
from controlplane.runtime.publish import Publisher
from controlplane.runtime.supervisor import Supervisor
from controlplane.sources.blocking_watch import Retry
from controlplane.sources.cached import CachedSignals
from controlplane.sources.consul_catalog import ConsulTopology
from controlplane.sources.consul_client import ConsulClient
from controlplane.sources.consul_kv import ConsulDocuments, ConsulStatusSink
from controlplane.sources.file_store import DirectoryStatusSink
from controlplane.sources.file_topology import FileTopology
from controlplane.sources.files import DirectoryDocuments
from controlplane.sources.fuse import Fuse, FuseMetrics
from controlplane.sources.ports import DocumentSource, SignalSource, StatusSink, TopologySource
from controlplane.sources.prometheus import PrometheusSignals
from controlplane.sources.scrape import ScrapeSignals
from controlplane.sources.signal_metrics import SignalMetrics
from controlplane.store.checkpoint import CheckpointStore
from controlplane.store.history import History
from controlplane.store.instruments import StoreMetrics
from controlplane.store.log import DecisionLog, LogLimits
from controlplane.xds.build import SnapshotBuilder
from controlplane.xds.server import XdsServer


async def serve(settings: Settings, *, stop: asyncio.Event | None = None) -> int:
    """Run the control plane until `stop` is set, or SIGTERM or SIGINT comes; give the exit code.

    The first signal ends it in order, a second one at once.

    Raises:
        SettingsError: if a port is taken or a setting cannot work.
        StoreError: if the state directory is not usable.
    """
    configure_logging(settings.log)
    log = structlog.get_logger("trimtab")
    stop = stop or _stop_on_signals()
    async with AsyncExitStack() as stack:
        loop = await _compose(settings, stack)
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(loop.run(), name="control loop")
            await stop.wait()
            log.info("stopping")
            ticking.cancel()
    log.info("stopped")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """What everything stands on."""

    settings: Settings
    clock: SystemClock
    registry: CollectorRegistry
    stack: AsyncExitStack
    """Closes what was opened, last first."""


async def _compose(settings: Settings, stack: AsyncExitStack) -> ControlLoop:
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    stores = _stores(settings, registry)
    checkpoint = stores.checkpoint.load()
    clock = SystemClock(continue_from=checkpoint["now"] if checkpoint else 0.0)
    ground = _Ground(settings=settings, clock=clock, registry=registry, stack=stack)
    wake, report_due = asyncio.Event(), asyncio.Event()
    server = XdsServer(
        settings=settings.xds,
        registry=registry,
        clock=clock.monotonic,
        on_change=report_due.set,
    )
    loop = ControlLoop(
        settings=settings.loop,
        clock=clock,
        parts=await _parts(ground, server, stores, wake),
        state=restore(checkpoint),
        wake=wake,
        report_due=report_due,
    )
    StateCollector(state=loop, registry=registry)
    await _listen(ground, server, loop)
    return loop


async def _parts(ground: _Ground, server: XdsServer, stores: Stores, wake: asyncio.Event) -> Parts:
    settings, registry = ground.settings, ground.registry
    inputs = await _inputs(ground)
    supervisor = Supervisor(registry=registry)
    listener = settings.listener
    return Parts(
        ingest=Ingest(
            sources=inputs.sources,
            interval_seconds=settings.loop.interval_seconds,
            supervisor=supervisor,
            on_change=wake.set,
        ),
        journal=Journal(stores=stores),
        publisher=Publisher(
            builder=SnapshotBuilder(max_resource_bytes=settings.xds.max_resource_bytes),
            server=server,
            listener=ListenerPlan(listener.name, listener.address, listener.port),
            registry=registry,
        ),
        server=server,
        status=inputs.status,
        supervisor=supervisor,
        instruments=Instruments(registry=registry),
        source_health=inputs.health,
    )


async def _listen(ground: _Ground, server: XdsServer, loop: ControlLoop) -> None:
    settings, stack = ground.settings, ground.stack
    await server.start()
    stack.push_async_callback(server.stop, settings.loop.shutdown_grace_seconds)
    admin = AdminServer(settings=settings.admin, state=loop, registry=ground.registry)
    try:
        await admin.start()
    except OSError as error:
        reason = f"cannot listen on {settings.admin.address}:{settings.admin.port}: {error.strerror}"
        raise SettingsError("admin.port", reason) from error
    stack.push_async_callback(admin.stop)


def _stores(settings: Settings, registry: CollectorRegistry) -> Stores:
    store = settings.store
    metrics = StoreMetrics(registry=registry)
    limits = LogLimits(
        max_bytes=store.max_log_bytes,
        max_files=store.max_log_files,
        ring_records=store.ring_records,
    )
    history = DecisionLog(directory=store.directory, limits=limits, name="history", metrics=metrics)
    return Stores(
        log=DecisionLog(directory=store.directory, limits=limits, metrics=metrics),
        checkpoint=CheckpointStore(directory=store.directory),
        history=History(log=history),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    sources: Sources
    status: StatusSink
    health: Callable[[], tuple[SourceHealth, ...]]


async def _inputs(ground: _Ground) -> _Inputs:
    """Make the sources that the settings name, and only those."""
    settings, metrics = ground.settings, FuseMetrics(ground.registry)

    def fuse(name: str) -> Fuse:
        return Fuse(
            name=name,
            settings=settings.fuse,
            clock=ground.clock.monotonic,
            metrics=metrics,
            random=jitter,
        )

    documents: DocumentSource
    status: StatusSink
    topology: TopologySource
    consul = _consul(ground)
    retry = Retry(
        minimum_seconds=settings.consul.retry_min_seconds,
        maximum_seconds=settings.consul.retry_max_seconds,
        clock=ground.clock.monotonic,
        random=jitter,
    )
    prefix = settings.consul.prefix
    if settings.sources.documents == "consul":
        documents = ConsulDocuments(client=consul, prefix=prefix, fuse=fuse("documents"), retry=retry)
        status = ConsulStatusSink(client=consul, prefix=prefix, registry=ground.registry)
    else:
        documents = DirectoryDocuments(root=settings.sources.directory, fuse=fuse("documents"))
        status = DirectoryStatusSink(root=settings.sources.directory, registry=ground.registry)
    if settings.sources.topology == "consul":
        topology = ConsulTopology(client=consul, fuse=fuse("topology"), retry=retry)
    else:
        topology = FileTopology(file=settings.sources.endpoints_file, fuse=fuse("topology"))
    signals = await _signals(ground, fuse("signals"))
    return _Inputs(
        sources=Sources(documents=documents, topology=topology, signals=signals),
        status=status,
        health=lambda: (documents.health(), signals.health(), topology.health()),
    )


def _consul(ground: _Ground) -> ConsulClient:
    """Make the Consul client; it connects when first asked."""
    client = ConsulClient(settings=ground.settings.consul)
    ground.stack.push_async_callback(client.close)
    return client


async def _signals(ground: _Ground, fuse: Fuse) -> CachedSignals:
    settings, clock = ground.settings, ground.clock.monotonic
    metrics = SignalMetrics(ground.registry)
    source: SignalSource
    if settings.sources.signals == "prometheus":
        prometheus = PrometheusSignals(settings=settings.prometheus, clock=clock, metrics=metrics)
        ground.stack.callback(prometheus.close)
        source = prometheus
    else:
        session = await ground.stack.enter_async_context(
            # Endpoints are many and not ours: no cookie of one may reach another.
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()),
        )
        source = ScrapeSignals(settings=settings.scrape, session=session, clock=clock, metrics=metrics)
    return CachedSignals(source=source, fuse=fuse, clock=clock, metrics=metrics)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def on_signal() -> None:
        stop.set()
        for number in signals:  # a second signal meets the default action: the end
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    return stop
