"""A raw xDS client: says exactly what a test tells it to, and nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import grpc

from controlplane.model.resources import ENDPOINT
from controlplane.xds.server import discovery_pb2 as pb
from controlplane.xds.server.messages import Variant
from controlplane.xds.server.services import METHODS

DEADLINE = 5.0


@dataclass(frozen=True)
class Response:
    """One response of either variant, with opaque resources. `removed`: in SotW, empty assignments."""

    type_url: str
    version: str
    nonce: str
    bodies: tuple[bytes, ...]
    versions: Mapping[str, str]
    removed: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return sorted(body.decode().split("=")[0] for body in self.bodies)

    @property
    def contents(self) -> dict[str, str]:
        return dict(body.decode().split("=") for body in self.bodies)


class RawStream:
    """One stream, aggregated (`type_url` empty) or of one type."""

    def __init__(self, channel: grpc.aio.Channel, variant: Variant, type_url: str, node_id: str) -> None:
        method = next(
            each for each in METHODS.values() if (each.variant, each.type_url) == (variant, type_url)
        )
        self.variant = variant
        self._node: pb.Node | None = pb.Node(id=node_id, cluster="raw", user_agent_name="raw")
        untyped: Any = channel
        self.call = untyped.stream_stream(method.path)()

    async def send_bytes(self, body: bytes) -> None:
        async with asyncio.timeout(DEADLINE):
            await self.call.write(body)

    async def ask(
        self,
        type_url: str,
        names: Iterable[str] = (),
        *,
        drop: Iterable[str] = (),
        versions: Mapping[str, str] | None = None,
        nonce: str = "",
        version: str = "",
        error: str | None = None,
    ) -> None:
        node, self._node = self._node, None
        detail = None if error is None else pb.Status(code=3, message=error)
        request: pb.DiscoveryRequest | pb.DeltaDiscoveryRequest
        if self.variant is Variant.SOTW:
            request = pb.DiscoveryRequest(
                node=node,
                type_url=type_url,
                resource_names=list(names),
                response_nonce=nonce,
                version_info=version,
                error_detail=detail,
            )
        else:
            request = pb.DeltaDiscoveryRequest(
                node=node,
                type_url=type_url,
                resource_names_subscribe=list(names),
                resource_names_unsubscribe=list(drop),
                initial_resource_versions=dict(versions or {}),
                response_nonce=nonce,
                error_detail=detail,
            )
        await self.send_bytes(request.SerializeToString())

    async def ack(self, response: Response, names: Iterable[str] = ()) -> None:
        """Accept; SotW repeats the subscription, delta has nothing to repeat."""
        await self.ask(
            response.type_url,
            names if self.variant is Variant.SOTW else (),
            nonce=response.nonce,
            version=response.version,
        )

    async def nack(self, response: Response, names: Iterable[str] = (), error: str = "bad") -> None:
        await self.ask(
            response.type_url,
            names if self.variant is Variant.SOTW else (),
            nonce=response.nonce,
            error=error,
        )

    async def receive(self, timeout: float = DEADLINE) -> Response:  # noqa: ASYNC109 - a test's patience
        async with asyncio.timeout(timeout):
            body = await self.call.read()
        assert isinstance(body, bytes), f"the stream ended: {await self.call.code()}"
        return decode(body, self.variant)

    async def is_quiet(self, seconds: float = 0.15) -> bool:
        """Tell whether nothing comes for a while. A read that timed out ends the stream: call it last."""
        try:
            await self.receive(seconds)
        except TimeoutError:
            return True
        return False

    async def status(self) -> grpc.StatusCode:
        async with asyncio.timeout(DEADLINE):
            with suppress(grpc.aio.AioRpcError):
                while isinstance(await self.call.read(), bytes):
                    pass
            code: grpc.StatusCode = await self.call.code()
            return code

    def cancel(self) -> None:
        self.call.cancel()


def decode(body: bytes, variant: Variant) -> Response:
    if variant is Variant.SOTW:
        sotw = pb.DiscoveryResponse.FromString(body)
        bodies = tuple(body for body in sotw.resources if not body.startswith(b"\n"))
        removed = tuple(_empty_assignment_name(body) for body in sotw.resources if body.startswith(b"\n"))
        return Response(sotw.type_url, sotw.version_info, sotw.nonce, bodies, {}, removed)
    delta = pb.DeltaDiscoveryResponse.FromString(body)
    return Response(
        delta.type_url,
        delta.system_version_info,
        delta.nonce,
        tuple(each.resource for each in delta.resources),
        {each.name: each.version for each in delta.resources},
        tuple(delta.removed_resources),
    )


def _empty_assignment_name(body: bytes) -> str:
    """Read what the server itself makes up: a real `Any`, unlike the opaque resources."""
    message = pb.Any.FromString(body)
    assert message.type_url == ENDPOINT
    return pb.ClusterLoadAssignment.FromString(message.value).cluster_name


async def until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


@asynccontextmanager
async def raw_stream(
    port: int,
    variant: Variant,
    type_url: str = "",
    *,
    node_id: str = "raw-1",
    options: Sequence[tuple[str, int]] = (),
) -> AsyncIterator[RawStream]:
    """Open one stream on a connection of its own."""
    own = [("grpc.use_local_subchannel_pool", 1), *options]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=own) as channel:
        stream = RawStream(channel, variant, type_url, node_id)
        try:
            yield stream
        finally:
            with suppress(asyncio.InvalidStateError):
                stream.cancel()
