"""The control loop: wait for something to change (or the interval to pass), tick, publish, report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from controlplane.config import LoopSettings
from controlplane.model.documents import AcceptedDocument
from controlplane.model.health import SourceHealth
from controlplane.runtime.clock import Clock
from controlplane.runtime.engine import (
    EngineState,
    Outcome,
    World,
    advance,
    settle,
    signal_request,
    topology_of,
)
from controlplane.runtime.ingest import Ingest
from controlplane.runtime.instruments import Instruments
from controlplane.runtime.journal import Journal
from controlplane.runtime.publish import Publisher, Server
from controlplane.runtime.reporting import Moment, orphan_document, state_view, status_document
from controlplane.runtime.state import StateView
from controlplane.runtime.supervisor import Supervisor
from controlplane.sources.ports import StatusSink

_REPORT_SECONDS = 0.25
"""A thousand Envoys that acknowledge at once are one report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop joins."""

    ingest: Ingest
    journal: Journal
    publisher: Publisher
    server: Server
    status: StatusSink
    supervisor: Supervisor
    instruments: Instruments
    source_health: Callable[[], tuple[SourceHealth, ...]]


class ControlLoop:
    """Owns the engine's state: nobody else changes it, everybody may read a view of it."""

    def __init__(
        self,
        *,
        settings: LoopSettings,
        clock: Clock,
        parts: Parts,
        state: EngineState,
        wake: asyncio.Event,
        report_due: asyncio.Event,
    ) -> None:
        """Start from `state` (a checkpoint's, or empty).

        `wake` is set whenever a tick is due, `report_due` when an Envoy came, left, or answered: that
        is worth a report, and no decision.
        """
        self._settings = settings
        self._clock = clock
        self._parts = parts
        self._state = state
        self._wake = wake
        self._report_due = report_due
        self._log = structlog.get_logger("trimtab.loop")
        self._started_from_checkpoint = bool(state.plans)
        self._last_tick_seconds: float | None = None
        self._refused_at: dict[tuple[str, int], float] = {}

    async def run(self) -> None:
        """Serve the checkpoint if there is one, then tick until cancelled."""
        if self._state.plans:
            self._parts.publisher.publish(self._state.plans)
            self._log.info("serving_checkpoint", services=sorted(self._state.plans))
        self._ask(self._state)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._parts.ingest.run(), name="ingest")
            for part, run in (("tick", self._tick_forever), ("report", self._report_forever)):
                group.create_task(self._parts.supervisor.keep_running(part, run), name=part)

    def view(self) -> StateView:
        """Give the current state (`controlplane.runtime.state.StateReader`)."""
        return state_view(
            self._state,
            Moment(
                at_seconds=self._clock.monotonic(),
                readings=self._parts.ingest.readings,
                sources=self._parts.source_health(),
                fleet=self._parts.server.fleet(),
                snapshot=self._parts.publisher.snapshot,
                build_failures=self._parts.publisher.failed,
                refused_at=self._refused_at,
                last_tick_seconds=self._last_tick_seconds,
                started_from_checkpoint=self._started_from_checkpoint,
                not_ready_reason=self._not_ready_reason(),
                store_degraded=self._parts.journal.degraded,
            ),
        )

    def history(self, service: str) -> tuple[AcceptedDocument, ...]:
        """Give the accepted documents of a service, oldest first."""
        return self._parts.journal.history(service)

    async def _tick_forever(self) -> None:
        while True:
            due_at = self._clock.monotonic() + self._settings.interval_seconds
            try:
                async with asyncio.timeout(self._settings.interval_seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self._tick()
            self._parts.instruments.tick_lag_seconds.set(max(0.0, self._clock.monotonic() - due_at))

    async def _report_forever(self) -> None:
        """Report after ticks and answers of Envoys, a fleet's answers at a time.

        Apart from the ticks: a store that is slow to take a status must not hold up a decision.
        """
        while True:
            await self._report_due.wait()
            await asyncio.sleep(_REPORT_SECONDS)
            self._report_due.clear()
            await self._report()

    async def _tick(self) -> None:
        now = self._clock.monotonic()
        ingest = self._parts.ingest
        world = World(
            documents=ingest.documents,
            offer=ingest.offer,
            readings=ingest.readings,
            acked_parts=self._parts.publisher.acked_parts,
            acked_ratio=self._parts.publisher.acked_ratio(),
            attempted=ingest.attempted,
        )
        settled = settle(self._state, world, now=now, hold_seconds=self._settings.topology_hold_seconds)
        await self._note_documents(settled, now)
        # Kept even if the tick ends here: what was noted once must not count as new in the next one.
        self._state = settled
        self._ask(settled)
        if world.documents is None or (settled.registry.active and world.offer is None):
            # A source has not answered since the start: what is served stays as it is.
            return
        with self._parts.instruments.decision_latency.time():
            outcome = advance(settled, world, now=now, guarded=self._parts.supervisor.guarded)
        await self._publish(outcome)
        self._last_tick_seconds = now
        self._report_due.set()

    def _ask(self, state: EngineState) -> None:
        """Tell the sources which services' endpoints and signals are wanted."""
        self._parts.ingest.follow(frozenset(state.registry.active))
        requests = []
        for service, accepted in state.registry.active.items():
            topology = topology_of(state.membership, service)
            if topology.endpoints:
                requests.append(signal_request(topology, accepted.spec.signals))
        self._parts.ingest.demand(tuple(requests))

    async def _publish(self, outcome: Outcome) -> None:
        events = [
            {
                "kind": "canary",
                "service": service,
                "event": event.kind,
                "phase": event.phase.value,
                "canary_parts": event.canary_parts,
                "reason": event.reason,
            }
            for service, event in outcome.canary_events
        ]
        for found in events:
            self._log.info("canary_moved", **{name: found[name] for name in ("service", "phase", "reason")})
        await self._parts.journal.record(
            outcome.decisions,
            events,
            before=self._state.memories,
            unix_seconds=self._clock.unix(),
        )
        self._state = outcome.state
        self._parts.instruments.count(outcome.decisions)
        if self._is_complete(outcome.state) and self._parts.publisher.publish(outcome.state.plans):
            self._log.info("published", version=self._version(), services=len(outcome.state.plans))
        await self._parts.journal.save(outcome.state, now=self._clock.monotonic())

    def _is_complete(self, state: EngineState) -> bool:
        """Tell if a snapshot may be sent: nothing is served before everything is known (fault R2)."""
        if self._parts.publisher.snapshot is not None:
            return True
        return bool(state.plans) and state.plans.keys() == state.registry.active.keys()

    def _not_ready_reason(self) -> str:
        if self._parts.publisher.snapshot is not None:
            return ""
        ingest, active = self._parts.ingest, self._state.registry.active
        if ingest.documents is None:
            return "the document store has not answered yet"
        if not active:
            return "no strategy is in force"
        if ingest.offer is None:
            return "discovery has not answered yet"
        missing = sorted(active.keys() - self._state.plans.keys())
        return f"no decision yet for: {', '.join(missing)}"

    async def _note_documents(self, settled: EngineState, now: float) -> None:
        """Write accepted documents to the history; log and count what was refused for the first time."""
        before, after = self._state.registry, settled.registry
        accepted = [
            AcceptedDocument(
                service=service,
                version=found.spec.version,
                hash=found.hash,
                accepted_at_unix_seconds=self._clock.unix(),
                body=found.document.body.decode("utf-8"),
            )
            for service, found in after.strategies.accepted.items()
            if service not in before.strategies.accepted
            or before.strategies.accepted[service].hash != found.hash
        ]
        for document in accepted:
            self._log.info(
                "strategy_accepted", service=document.service, version=document.version, hash=document.hash
            )
        await self._parts.journal.accepted(accepted)
        refused_at = {}
        for kind, shelf in (("strategy", after.strategies), ("canary", after.canaries)):
            for service, refused in shelf.refused.items():
                mark = (refused.document.key, refused.document.revision)
                if mark not in self._refused_at:
                    self._parts.instruments.documents_rejected.labels(kind).inc()
                    self._log.warning(
                        "document_refused", kind=kind, service=service, problems=str(refused.rejected)
                    )
                refused_at[mark] = self._refused_at.get(mark, now)
        self._refused_at = refused_at

    async def _report(self) -> None:
        view = self.view()
        for service in view.services:
            await self._parts.status.write(service.service, status_document(view, service))
        for name, rejected in view.orphans.items():
            await self._parts.status.write(name, orphan_document(name, rejected))

    def _version(self) -> str:
        snapshot = self._parts.publisher.snapshot
        return snapshot.version if snapshot else ""
