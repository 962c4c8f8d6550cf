"""The conformance scenarios from a raw gRPC client: both variants, aggregated and per type."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from controlplane.config import XdsSettings
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE
from controlplane.xds.server import XdsServer
from controlplane.xds.server.messages import Variant
from tests.support.xds_client import RawStream, raw_stream, until
from tests.support.xds_resources import resource, simple, snapshot

ALL = (CLUSTER, ENDPOINT, LISTENER, ROUTE)
WILDCARD = (CLUSTER, LISTENER)


@dataclass(frozen=True)
class Way:
    """How the client speaks."""

    variant: Variant
    is_aggregated: bool

    def stream(
        self, port: int, type_url: str, node_id: str = "raw-1"
    ) -> AbstractAsyncContextManager[RawStream]:
        return raw_stream(port, self.variant, "" if self.is_aggregated else type_url, node_id=node_id)


WAYS = [Way(variant, is_aggregated) for variant in Variant for is_aggregated in (True, False)]


@pytest.fixture(params=WAYS, ids=lambda way: f"{way.variant}-{'ads' if way.is_aggregated else 'per-type'}")
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


@pytest.fixture
async def server() -> AsyncIterator[XdsServer]:
    server = XdsServer(settings=XdsSettings(port=0), registry=CollectorRegistry(), clock=time.monotonic)
    yield server
    await server.stop(0.5)


@pytest.fixture
async def port(server: XdsServer) -> int:
    return await server.start()


def publish(server: XdsServer, type_url: str, **contents: int) -> str:
    """Publish resources of one type; give the set's version."""
    made = snapshot({type_url: [resource(name, content) for name, content in contents.items()]})
    server.publish(made)
    return made.sets[type_url].version


@pytest.mark.parametrize("type_url", WILDCARD)
async def test_wildcard_gets_all_updates_and_additions(
    way: Way, server: XdsServer, port: int, type_url: str
) -> None:
    version = publish(server, type_url, a=1, b=1)
    async with way.stream(port, type_url) as client:
        await client.ask(type_url)
        first = await client.receive()
        assert (first.type_url, first.version, first.names) == (type_url, version, ["a", "b"])
        await client.ack(first)

        version = publish(server, type_url, a=2, b=1)
        second = await client.receive()
        assert second.version == version
        assert second.contents["a"] == "2"
        assert second.names == (["a", "b"] if way.variant is Variant.SOTW else ["a"])
        await client.ack(second)

        publish(server, type_url, a=2, b=1, c=1)
        third = await client.receive()
        assert third.names == (["a", "b", "c"] if way.variant is Variant.SOTW else ["c"])
        await client.ack(third)

        publish(server, type_url, a=2)
        fourth = await client.receive()
        if way.variant is Variant.SOTW:
            assert fourth.names == ["a"]
        else:
            assert (fourth.names, fourth.removed) == ([], ("b", "c"))


@pytest.mark.parametrize("type_url", ALL)
async def test_named_subset_and_update_of_a_member(
    way: Way, server: XdsServer, port: int, type_url: str
) -> None:
    publish(server, type_url, a=1, b=1, c=1)
    async with way.stream(port, type_url) as client:
        await client.ask(type_url, ["a", "b"])
        first = await client.receive()
        assert first.names == ["a", "b"]
        await client.ack(first, ["a", "b"])

        publish(server, type_url, a=2, b=1, c=2)
        second = await client.receive()
        is_full = way.variant is Variant.SOTW and type_url in WILDCARD
        assert second.names == (["a", "b"] if is_full else ["a"])
        await client.ack(second, ["a", "b"])

        publish(server, type_url, a=2, b=1, c=3)
        assert await client.is_quiet()


@pytest.mark.parametrize("type_url", ALL)
async def test_missing_name_is_sent_once_it_exists(
    way: Way, server: XdsServer, port: int, type_url: str
) -> None:
    publish(server, type_url, a=1)
    async with way.stream(port, type_url) as client:
        await client.ask(type_url, ["a", "later"])
        first = await client.receive()
        assert first.names == ["a"]
        if way.variant is Variant.DELTA or type_url == ENDPOINT:
            assert first.removed == ("later",)
        await client.ack(first, ["a", "later"])

        publish(server, type_url, a=1, later=1)
        second = await client.receive()
        assert "later" in second.names


@pytest.mark.parametrize("type_url", ALL)
async def test_partial_then_full_unsubscribe(way: Way, server: XdsServer, port: int, type_url: str) -> None:
    publish(server, type_url, a=1, b=1)
    async with way.stream(port, type_url) as client:
        await client.ask(type_url, ["a", "b"])
        await client.ack(await client.receive(), ["a", "b"])

        await unsubscribe(server, client, type_url, drop=["a"], keep=["b"])
        publish(server, type_url, a=2, b=2)
        second = await client.receive()
        assert second.names == ["b"]
        await client.ack(second, ["b"])

        await unsubscribe(server, client, type_url, drop=["b"], keep=[""])
        publish(server, type_url, a=3, b=3)
        assert await client.is_quiet()


async def unsubscribe(
    server: XdsServer, client: RawStream, type_url: str, *, drop: list[str], keep: list[str]
) -> None:
    """Send it once the last ACK has arrived, and wait until the server has read it."""
    await until(lambda: server.fleet().nodes[0].types[0].state == "SYNCED")
    before = server.fleet().nodes[0].last_contact_seconds
    if client.variant is Variant.SOTW:
        await client.ask(type_url, keep)
    else:
        await client.ask(type_url, drop=drop)
    await until(lambda: server.fleet().nodes[0].last_contact_seconds > before)


@pytest.mark.parametrize("variant", list(Variant))
async def test_types_over_one_aggregated_stream(variant: Variant, server: XdsServer, port: int) -> None:
    server.publish(simple(clusters={"a": 1}, endpoints={"a": 1}, listeners={"l": 1}, routes={"l": "a"}))
    async with raw_stream(port, variant) as client:
        for type_url, names in ((CLUSTER, []), (ENDPOINT, ["a"]), (LISTENER, []), (ROUTE, ["l"])):
            await client.ask(type_url, names)
            response = await client.receive()
            assert response.type_url == type_url
            await client.ack(response, names)
        assert await client.is_quiet()


async def test_delta_sequence(server: XdsServer, port: int) -> None:
    publish(server, ENDPOINT, a=1, b=1)
    for type_url in ("", ENDPOINT):
        async with raw_stream(port, Variant.DELTA, type_url) as client:
            publish(server, ENDPOINT, a=1, b=1)
            for name in ("a", "b"):
                await client.ask(ENDPOINT, [name])
                response = await client.receive()
                assert response.names == [name]
                await client.ack(response)

            publish(server, ENDPOINT, a=1)
            removal = await client.receive()
            assert (removal.names, removal.removed) == ([], ("b",))
            await client.ack(removal)

            publish(server, ENDPOINT, a=1, b=1)
            again = await client.receive()
            assert again.names == ["b"]
            await client.ack(again)

            await unsubscribe(server, client, ENDPOINT, drop=["b"], keep=[])
            publish(server, ENDPOINT, a=1, b=2)
            assert await client.is_quiet()


@pytest.mark.fault("R15")
async def test_refusal_is_told_and_not_repeated(way: Way, server: XdsServer, port: int) -> None:
    good = publish(server, LISTENER, a=1)
    async with way.stream(port, LISTENER) as client:
        await client.ask(LISTENER)
        await client.ack(await client.receive())
        bad = publish(server, LISTENER, a=2)
        await client.nack(await client.receive(), error="broken")
        await until(lambda: server.fleet().nodes[0].types[0].nacked_version == bad)
        (status,) = server.fleet().nodes[0].types
        assert (status.nacked_version, status.acked_version) == (bad, good)
        assert status.nack_message == "broken"
        publish(server, LISTENER, a=3)
        assert (await client.receive()).contents == {"a": "3"}


@pytest.mark.fault("R1")
async def test_delta_reconnect_with_versions_is_quiet(server: XdsServer, port: int) -> None:
    publish(server, CLUSTER, a=1, b=1)
    async with raw_stream(port, Variant.DELTA) as client:
        await client.ask(CLUSTER)
        first = await client.receive()
    async with raw_stream(port, Variant.DELTA) as client:
        await client.ask(CLUSTER, versions=first.versions)
        assert await client.is_quiet()
    async with raw_stream(port, Variant.DELTA) as client:
        await client.ask(CLUSTER, versions={**first.versions, "a": "older", "gone": "x"})
        response = await client.receive()
        assert (response.names, response.removed) == (["a"], ("gone",))


async def test_sotw_reconnect_is_answered_whatever_the_version(server: XdsServer, port: int) -> None:
    version = publish(server, CLUSTER, a=1)
    for _ in range(2):
        async with raw_stream(port, Variant.SOTW) as client:
            await client.ask(CLUSTER, version=version, nonce="1")
            assert (await client.receive()).version == version


@pytest.mark.fault("R2")
async def test_cold_start_serves_nothing(way: Way, server: XdsServer, port: int) -> None:
    async with way.stream(port, CLUSTER) as client:
        await client.ask(CLUSTER)
        assert await client.is_quiet()
    async with way.stream(port, CLUSTER) as client:
        await client.ask(CLUSTER)
        server.publish(snapshot({CLUSTER: [resource("a")]}))
        assert (await client.receive()).names == ["a"]


async def test_one_group_never_sees_another() -> None:
    server = XdsServer(
        settings=XdsSettings(port=0),
        registry=CollectorRegistry(),
        clock=time.monotonic,
        group_of=lambda node: node.id.partition("-")[0],
    )
    port = await server.start()
    try:
        server.publish(snapshot({CLUSTER: [resource("a")]}), group="blue")
        async with (
            raw_stream(port, Variant.SOTW, node_id="blue-1") as blue,
            raw_stream(port, Variant.SOTW, node_id="red-1") as red,
        ):
            await red.ask(CLUSTER)
            await blue.ask(CLUSTER)
            assert (await blue.receive()).names == ["a"]
            server.publish(snapshot({CLUSTER: [resource("b")]}), group="red")
            assert (await red.receive()).names == ["b"]
            assert [node.group for node in server.fleet().nodes] == ["blue", "red"]
    finally:
        await server.stop(0.5)


async def test_unknown_method_is_unimplemented(port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        untyped: Any = channel
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await untyped.unary_unary("/envoy.service.nothing.v3.Nothing/Get")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
