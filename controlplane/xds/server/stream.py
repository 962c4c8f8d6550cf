"""One stream: a reader that notes requests, a writer that asks the machine what to send.

The writer takes one response at a time, when the previous one is written. There is no queue: a client
that does not read holds up only itself, and later finds the newest state, not a backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import grpc
import structlog

from controlplane.config import XdsSettings
from controlplane.model.resources import TYPE_ORDER, Snapshot
from controlplane.xds.server.channel import excerpt
from controlplane.xds.server.machine import Machine
from controlplane.xds.server.messages import Answer, Node, Refusal, RefusalCode
from controlplane.xds.server.metrics import ServerMetrics, short_name
from controlplane.xds.server.pace import TokenBucket
from controlplane.xds.server.wire import Decoded, Encoder

log = structlog.get_logger()

MAX_NODE_CHARACTERS = 1024
"""Longest node id or cluster that is kept."""

_LOGGED_CHARACTERS = 500
"""Of a NACK message."""


class Call(Protocol):
    """What a stream needs of gRPC's call: reading and writing messages as bytes."""

    async def read(self) -> object:
        """Give the next message, or `grpc.aio.EOF` once the client has finished."""
        ...

    async def write(self, message: bytes) -> None:
        """Write a message; returns when the transport has room for the next."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all streams of a server share."""

    settings: XdsSettings
    clock: Callable[[], float]
    encoder: Encoder
    metrics: ServerMetrics
    snapshot_of: Callable[[str], Snapshot | None]
    """Group → its newest snapshot."""
    admit: Callable[[Node], Refusal | str]
    """Give a node its group, or refuse the stream."""
    on_change: Callable[[], None]


class Stream:
    """One open stream. Ends by the client, by `close`, or by a refusal."""

    def __init__(
        self,
        *,
        machine: Machine,
        decode: Callable[[bytes], Decoded | None],
        peer: str,
        shared: Surroundings,
    ) -> None:
        self.machine = machine
        self.peer = peer
        self.node: Node | None = None
        """Known from the first request on; later ones may leave it out or differ, and do not count."""
        self.group = ""
        self.connected_at = self.last_contact = shared.clock()
        self._decode = decode
        self._shared = shared
        self._news = asyncio.Event()
        self._is_ending = False
        self._refusal: Refusal | None = None
        self._bucket = TokenBucket(
            rate=shared.settings.requests_per_second,
            burst=shared.settings.request_burst,
            now=self.connected_at,
        )

    def wake(self) -> None:
        """Tell the stream that there may be something to send. Never blocks; merges with earlier wakes."""
        self._news.set()

    def close(self) -> None:
        """End the stream soon, without waiting for it."""
        self._is_ending = True
        self._news.set()

    async def run(self, call: Call) -> Refusal | None:
        """Serve until the end; give the reason if the client is to be told one."""
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._read(call))
            await self._write(call)
            reader.cancel()
        return self._refusal

    async def _read(self, call: Call) -> None:
        while self._refusal is None:
            limit = self._shared.settings.first_request_timeout_seconds if self.node is None else None
            try:
                async with asyncio.timeout(limit):
                    body = await call.read()
            except TimeoutError:
                self._refusal = Refusal(RefusalCode.DEADLINE_EXCEEDED, "silent", "no request came")
                break
            if not isinstance(body, bytes):
                break
            self._refusal = self._take(body)
            self._news.set()
            pause = self._bucket.take(self._shared.clock())
            if pause > 0:
                await asyncio.sleep(pause)
        self.close()

    def _take(self, body: bytes) -> Refusal | None:
        decoded = self._decode(body)
        if decoded is None:
            return Refusal(
                RefusalCode.INVALID_ARGUMENT, "malformed", "the message is not a discovery request"
            )
        request, node = decoded
        now = self._shared.clock()
        self.last_contact = now
        if self.node is None:
            refusal = self._meet(node or Node())
            if refusal is not None:
                return refusal
        if request.type_url and request.type_url not in TYPE_ORDER:
            self._shared.metrics.unknown_type_requested()
        result = self.machine.on_request(request, now)
        if isinstance(result, Answer):
            self._note(result)
            return None
        return result

    def _meet(self, node: Node) -> Refusal | None:
        if max(len(node.id), len(node.cluster), len(node.user_agent)) > MAX_NODE_CHARACTERS:
            return Refusal(RefusalCode.INVALID_ARGUMENT, "node", "a field of the node is too long")
        admitted = self._shared.admit(node)
        if isinstance(admitted, Refusal):
            return admitted
        self.node, self.group = node, admitted
        self._shared.on_change()
        return None

    def _note(self, answer: Answer) -> None:
        self._shared.metrics.answered(answer)
        if answer.error is not None:
            log.warning(
                "resources_refused",
                node=self.node.id if self.node is not None else "",
                peer=self.peer,
                type=short_name(answer.type_url),
                version=answer.version,
                message=excerpt(answer.error, _LOGGED_CHARACTERS),
            )
        self._shared.on_change()

    async def _write(self, call: Call) -> None:
        while not self._is_ending:
            self._news.clear()
            snapshot = self._shared.snapshot_of(self.group) if self.node is not None else None
            if snapshot is not None:
                self.machine.on_snapshot(snapshot)
            push = self.machine.poll(self._shared.clock())
            if push is None:
                await self._rest()
                continue
            body = self._shared.encoder.encode(push, self.machine.variant)
            try:
                async with asyncio.timeout(self._shared.settings.write_timeout_seconds):
                    await call.write(body)
            except TimeoutError:
                self._refusal = Refusal(
                    RefusalCode.DEADLINE_EXCEEDED, "slow_reader", "the client does not read"
                )
                return
            self._shared.metrics.pushed(push.parcel.type_url, len(body))

    async def _rest(self) -> None:
        wake_at = self.machine.wake_at
        try:
            async with asyncio.timeout(
                None if wake_at is None else max(0.0, wake_at - self._shared.clock())
            ):
                await self._news.wait()
        except TimeoutError:
            return


STATUS_CODES = {
    RefusalCode.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalCode.RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalCode.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    RefusalCode.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}
