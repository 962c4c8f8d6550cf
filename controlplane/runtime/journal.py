"""What outlives the process: decisions (written before they are published), history, checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import structlog

from controlplane.core.acceptance import Accepted, Registry, Shelf, Spec
from controlplane.core.membership import Membership
from controlplane.core.parse import document_hash, parse_canary, parse_strategy
from controlplane.model.decision import Decision, ServiceMemory
from controlplane.model.documents import AcceptedDocument, RawDocument
from controlplane.model.problems import Rejected
from controlplane.model.rollout import CanarySpec
from controlplane.model.strategy import Strategy
from controlplane.runtime.engine import EngineState, restored_plans
from controlplane.store.checkpoint import CheckpointStore
from controlplane.store.history import History
from controlplane.store.log import DecisionLog
from controlplane.store.records import (
    canary_state_from_json,
    canary_state_to_json,
    decision_record,
    memory_from_json,
    memory_to_json,
    topology_from_json,
    topology_to_json,
)

CHECKPOINT_FORMAT = 1

Read_co = TypeVar("Read_co", Strategy, CanarySpec, covariant=True)


class Parser(Protocol[Read_co]):
    """Reads one kind of document."""

    def __call__(self, body: bytes, *, key: str) -> Read_co | Rejected:
        """Parse a document that the store calls `key`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The three files of the state directory."""

    log: DecisionLog
    checkpoint: CheckpointStore
    history: History


class Journal:
    """Writes down what is about to happen, off the event loop, in order."""

    def __init__(self, *, stores: Stores) -> None:
        self._stores = stores
        self._log = structlog.get_logger("trimtab.journal")
        self._saved: Mapping[str, Any] = {}

    @property
    def degraded(self) -> str:
        """Why the disk refuses writes; empty when it does not."""
        return self._stores.log.degraded or self._stores.checkpoint.degraded

    def history(self, service: str) -> tuple[AcceptedDocument, ...]:
        """Accepted documents of a service, oldest first."""
        return self._stores.history.of(service)

    async def record(
        self,
        decisions: Iterable[Decision],
        canaries: Iterable[Mapping[str, Any]],
        *,
        before: Mapping[str, ServiceMemory],
        unix_seconds: float,
    ) -> None:
        """Append what will be published. Returns once it is on disk, or held in memory if it can't be.

        `before` are the memories that the decisions were made with.
        """
        published = [
            (decision, before.get(decision.service, ServiceMemory()))
            for decision in decisions
            if decision.is_published
        ]
        events = list(canaries)
        if published or events:
            await asyncio.to_thread(self._append, published, events, unix_seconds)

    async def accepted(self, documents: Iterable[AcceptedDocument]) -> None:
        """Append newly accepted documents to the history."""
        found = list(documents)
        if found:
            await asyncio.to_thread(self._remember, found)

    async def save(self, state: EngineState, *, now: float) -> None:
        """Replace the checkpoint if there is something new in it."""
        await asyncio.to_thread(self._save, state, now)

    def _save(self, state: EngineState, now: float) -> None:
        content = checkpoint_of(state)
        if content != self._saved:
            self._saved = content
            self._stores.checkpoint.save(content | {"now": now})

    def _append(
        self,
        decisions: list[tuple[Decision, ServiceMemory]],
        canaries: list[Mapping[str, Any]],
        unix_seconds: float,
    ) -> None:
        records: list[Mapping[str, Any]] = [
            decision_record(decision, before) | {"unix_seconds": unix_seconds}
            for decision, before in decisions
        ]
        records.extend({**event, "unix_seconds": unix_seconds} for event in canaries)
        self._stores.log.append(records)

    def _remember(self, documents: list[AcceptedDocument]) -> None:
        for document in documents:
            self._stores.history.append(document)


def checkpoint_of(state: EngineState) -> dict[str, Any]:
    """Everything a restart needs, as JSON types. Documents are kept as text and parsed again."""
    return {
        "format": CHECKPOINT_FORMAT,
        "strategies": _shelf_to_json(state.registry.strategies),
        "canaries": _shelf_to_json(state.registry.canaries),
        "freezes": dict(sorted(state.registry.freezes.items())),
        "topology": topology_to_json(state.membership.topology),
        "memories": {
            name: memory_to_json(memory)
            for name, memory in sorted(state.memories.items())
            if name in state.registry.active
        },
        "canary_states": {
            name: canary_state_to_json(canary) for name, canary in sorted(state.canaries.items())
        },
    }


def restore(content: Mapping[str, Any] | None) -> EngineState:
    """Rebuild the state from a checkpoint; an empty state from none.

    Documents that this version refuses are left out, and with them their services.
    """
    if content is None or content.get("format") != CHECKPOINT_FORMAT:
        return EngineState()
    registry = Registry(
        strategies=_shelf_from_json(content["strategies"], parse_strategy),
        canaries=_shelf_from_json(content["canaries"], parse_canary),
        freezes=content["freezes"],
    )
    state = EngineState(
        registry=registry,
        membership=Membership(topology=topology_from_json(content["topology"])),
        memories={name: memory_from_json(found) for name, found in content["memories"].items()},
        canaries={name: canary_state_from_json(found) for name, found in content["canary_states"].items()},
    )
    return replace(state, plans=restored_plans(state))


def _shelf_to_json(shelf: Shelf[Spec]) -> dict[str, Any]:
    return {
        service: {
            "key": accepted.document.key,
            "body": accepted.document.body.decode("utf-8"),
            "revision": accepted.document.revision,
        }
        for service, accepted in sorted(shelf.accepted.items())
    }


def _shelf_from_json(content: Mapping[str, Any], parse: Parser[Spec]) -> Shelf[Spec]:
    accepted = {}
    for service, found in content.items():
        document = RawDocument(found["key"], found["body"].encode("utf-8"), found["revision"])
        spec = parse(document.body, key=document.key)
        if not isinstance(spec, Rejected):
            accepted[service] = Accepted(spec=spec, hash=document_hash(spec), document=document)
    return Shelf(accepted=accepted)
