"""The xDS server: the public face of this room."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable

import grpc
import structlog
from prometheus_client import CollectorRegistry

from controlplane.config import XdsSettings
from controlplane.errors import SettingsError
from controlplane.model.fleet import FleetStatus
from controlplane.model.resources import Snapshot
from controlplane.xds.cache.snapshots import SnapshotCache
from controlplane.xds.server.delta import DeltaMachine
from controlplane.xds.server.messages import Limits, Node, Refusal, Variant
from controlplane.xds.server.metrics import ServerMetrics
from controlplane.xds.server.roster import Roster
from controlplane.xds.server.services import Context, DiscoveryHandler, Method
from controlplane.xds.server.sotw import SotwMachine
from controlplane.xds.server.stream import STATUS_CODES, Stream, Surroundings
from controlplane.xds.server.transport import channel_options, check_plaintext, target
from controlplane.xds.server.wire import Encoder, decode_delta, decode_sotw

log = structlog.get_logger()

SPARE_CALLS = 64
"""Calls above `max_streams` that get as far as being refused and counted; gRPC refuses the rest."""

ABORT_SECONDS = 1.0
"""A client that is cut off has this long to take the status."""


def _one_group(_node: Node) -> str:
    return ""


def _ignore() -> None:
    return


class XdsServer:
    """Serve snapshots to Envoys over gRPC.

    Before the first `publish` of a node's group, its requests wait: nothing is ever answered from
    ignorance. All methods belong to the event loop that runs the server.

    Args:
        settings: address, limits, deadlines.
        registry: where the metrics go.
        clock: monotonic seconds.
        on_change: called after a connect, a disconnect, an ACK or a NACK; must return at once.
        group_of: gives the group of a node, once for each stream; one group by default.
        credentials: TLS; without, only loopback is served unless settings allow plaintext.

    Raises:
        SettingsError: if plaintext would leave the machine without being allowed to.
    """

    def __init__(
        self,
        *,
        settings: XdsSettings,
        registry: CollectorRegistry,
        clock: Callable[[], float],
        on_change: Callable[[], None] = _ignore,
        group_of: Callable[[Node], str] = _one_group,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        if credentials is None:
            check_plaintext(settings)
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._credentials = credentials
        self._metrics = ServerMetrics(registry=registry)
        self._snapshots = SnapshotCache()
        self._roster = Roster(settings=settings, group_of=group_of)
        self._shared = Surroundings(
            settings=settings,
            clock=clock,
            encoder=Encoder(on_encode=self._metrics.encoded),
            metrics=self._metrics,
            snapshot_of=self._snapshots.get,
            admit=self._roster.admit,
            on_change=on_change,
        )
        # Unlike a counter alone, this never repeats a nonce that a client kept from before a restart.
        self._nonce_root = secrets.token_hex(4)
        self._stream_numbers = itertools.count(1)
        self._grpc: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Listen, and give the port.

        Raises:
            SettingsError: if the address cannot be bound.
        """
        server = grpc.aio.server(
            options=channel_options(self._settings),
            maximum_concurrent_rpcs=self._settings.max_streams + SPARE_CALLS,
        )
        server.add_generic_rpc_handlers((DiscoveryHandler(serve=self._serve),))
        address = target(self._settings)
        try:
            if self._credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise SettingsError("xds.port", f"cannot listen on {address}") from error
        await server.start()
        self._grpc = server
        log.info("xds_listening", address=self._settings.address, port=port)
        return port

    def publish(self, snapshot: Snapshot, *, group: str = "") -> None:
        """Make a snapshot what the group's nodes should have. Never blocks; the latest wins."""
        if self._snapshots.put(snapshot, group=group):
            self._roster.wake(group)

    def fleet(self) -> FleetStatus:
        """Give the state of every connected node."""
        return self._roster.status(self._clock())

    async def stop(self, grace_seconds: float) -> None:
        """End all streams and close the port. Clients keep what they have and reconnect."""
        self._roster.close()
        if self._grpc is not None:
            await self._grpc.stop(grace_seconds)
            self._grpc = None

    async def _serve(self, method: Method, context: Context) -> None:
        refusal = self._roster.refuse()
        if refusal is None:
            refusal = await self._run(method, context)
        if refusal is not None:
            self._metrics.stream_rejected(refusal)
            log.warning("stream_rejected", peer=context.peer(), reason=refusal.reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ABORT_SECONDS):
                    await context.abort(STATUS_CODES[refusal.code], refusal.detail)

    async def _run(self, method: Method, context: Context) -> Refusal | None:
        stream = self._stream(method, context.peer())
        self._roster.enter(stream)
        self._metrics.stream_opened(method.variant)
        try:
            return await stream.run(context)
        finally:
            self._roster.leave(stream)
            self._metrics.stream_closed(method.variant)
            self._on_change()

    def _stream(self, method: Method, peer: str) -> Stream:
        is_sotw = method.variant is Variant.SOTW
        machine = (SotwMachine if is_sotw else DeltaMachine)(
            limits=Limits(names_per_type=self._settings.max_resource_names),
            nonce_prefix=f"{self._nonce_root}-{next(self._stream_numbers)}-",
            ack_timeout_seconds=self._settings.ack_timeout_seconds,
            fixed_type=method.type_url,
        )
        return Stream(
            machine=machine,
            decode=decode_sotw if is_sotw else decode_delta,
            peer=peer,
            shared=self._shared,
        )
