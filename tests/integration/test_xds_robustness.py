"""The server under bad clients, many clients, and its own end."""

from __future__ import annotations

import asyncio
import gc
import resource as system
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from controlplane.config import XdsSettings
from controlplane.errors import SettingsError
from controlplane.model.resources import CLUSTER, ENDPOINT, Resource, Snapshot
from controlplane.xds.server import XdsServer
from controlplane.xds.server import discovery_pb2 as pb
from controlplane.xds.server.messages import Variant
from tests.support.xds_client import raw_stream, until
from tests.support.xds_resources import digest, resource, snapshot

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

Start = Callable[..., Awaitable[int]]


class Served:
    """A running server and what it counts."""

    def __init__(self, **settings: object) -> None:
        self.registry = CollectorRegistry()
        self.changes = 0
        self.server = XdsServer(
            settings=XdsSettings(**{"port": 0} | settings),  # type: ignore[arg-type]  # by name
            registry=self.registry,
            clock=time.monotonic,
            on_change=self._changed,
        )
        self.port = 0

    def _changed(self) -> None:
        self.changes += 1

    def rejected(self, reason: str) -> float:
        return self.registry.get_sample_value("trimtab_xds_rejected_streams_total", {"reason": reason}) or 0

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0

    @property
    def streams(self) -> float:
        return sum(self.value("trimtab_xds_streams", variant=variant.value) for variant in Variant)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[Served]]]:
    running: list[Served] = []

    async def start(**settings: object) -> Served:
        served = Served(**settings)
        served.port = await served.server.start()
        running.append(served)
        return served

    yield start
    for served in running:
        await served.server.stop(0.5)


Serve = Callable[..., Awaitable[Served]]


def world(content: object = 1, *, size: int = 1) -> Snapshot:
    return snapshot({CLUSTER: [resource(f"c{number}", content) for number in range(size)]})


def heavy(version: int) -> Snapshot:
    """One resource of a megabyte."""
    return snapshot({CLUSTER: [Resource("a", digest(version), b"a=" + b"x" * 1_000_000)]})


@pytest.mark.fault("R23")
@pytest.mark.parametrize("variant", list(Variant))
async def test_malformed_bytes_end_one_stream_only(serve: Serve, variant: Variant) -> None:
    served = await serve()
    served.server.publish(world())
    async with (
        raw_stream(served.port, variant, node_id="good") as good,
        raw_stream(served.port, variant) as bad,
    ):
        await good.ask(CLUSTER)
        await good.ack(await good.receive())
        await bad.send_bytes(b"\xff\xff\xff not a request")
        assert await bad.status() is grpc.StatusCode.INVALID_ARGUMENT
        served.server.publish(world(2))
        assert (await good.receive()).contents == {"c0": "2"}
    assert served.rejected("malformed") == 1


@pytest.mark.fault("R23")
async def test_huge_requests_are_refused(serve: Serve) -> None:
    served = await serve(max_request_bytes=10_000)
    async with raw_stream(served.port, Variant.SOTW) as bad:
        await bad.ask(CLUSTER, ["x" * 20_000])
        assert await bad.status() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.fault("R23")
async def test_huge_node_ids_and_name_lists_are_refused(serve: Serve) -> None:
    served = await serve(max_resource_names=10)
    async with raw_stream(served.port, Variant.SOTW, node_id="n" * 5000) as bad:
        await bad.ask(CLUSTER)
        assert await bad.status() is grpc.StatusCode.INVALID_ARGUMENT
    async with raw_stream(served.port, Variant.SOTW) as bad:
        await bad.ask(ENDPOINT, map(str, range(11)))
        assert await bad.status() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (served.rejected("node"), served.rejected("names")) == (1, 1)


@pytest.mark.fault("R27")
async def test_streams_are_capped_in_total_and_per_node(serve: Serve) -> None:
    served = await serve(max_streams=3, max_streams_per_node=2)
    served.server.publish(world())
    async with AsyncExitStack() as stack:
        for number in range(3):
            node_id = "twice" if number < 2 else "once"
            client = await stack.enter_async_context(raw_stream(served.port, Variant.SOTW, node_id=node_id))
            await client.ask(CLUSTER)
            await client.receive()
            if number == 1:
                third = await stack.enter_async_context(
                    raw_stream(served.port, Variant.SOTW, node_id="twice")
                )
                await third.ask(CLUSTER)
                assert await third.status() is grpc.StatusCode.RESOURCE_EXHAUSTED
        fourth = await stack.enter_async_context(raw_stream(served.port, Variant.SOTW, node_id="new"))
        assert await fourth.status() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (served.rejected("streams_per_node"), served.rejected("streams")) == (1, 1)
    await until(lambda: served.streams == 0)
    async with raw_stream(served.port, Variant.SOTW, node_id="twice") as again:
        await again.ask(CLUSTER)
        await again.receive()


@pytest.mark.fault("R27")
async def test_a_flood_of_requests_is_read_slowly_and_harms_nobody(serve: Serve) -> None:
    served = await serve(requests_per_second=50, request_burst=10)
    served.server.publish(world())
    async with raw_stream(served.port, Variant.SOTW, node_id="flood") as flood:
        for _ in range(40):
            await flood.ask(CLUSTER)
        await flood.receive()
        async with raw_stream(served.port, Variant.SOTW, node_id="good") as good:
            started = time.monotonic()
            await good.ask(CLUSTER)
            await good.receive()
            assert time.monotonic() - started < 0.5


@pytest.mark.fault("R27")
async def test_a_stream_without_a_request_is_ended(serve: Serve) -> None:
    served = await serve(first_request_timeout_seconds=0.1)
    async with raw_stream(served.port, Variant.SOTW) as silent:
        assert await silent.status() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert served.rejected("silent") == 1


@pytest.mark.fault("R20")
async def test_a_client_that_never_reads_is_cut_off(serve: Serve) -> None:
    served = await serve(write_timeout_seconds=0.3)
    async with raw_stream(served.port, Variant.SOTW, node_id="good") as good:
        await good.ask(CLUSTER)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            untyped: Any = channel
            stuck = untyped.stream_stream(ADS)()
            request = pb.DiscoveryRequest(type_url=CLUSTER, node=pb.Node(id="stuck"))
            await stuck.write(request.SerializeToString())
            await until(lambda: served.streams == 2)

            received = 0
            while served.rejected("slow_reader") == 0:
                served.server.publish(heavy(received))
                assert len((await good.receive()).bodies) == 1
                received += 1
                assert received < 500

            await until(lambda: served.streams == 1)
            assert [node.node_id for node in served.server.fleet().nodes] == ["good"]
            served.server.publish(heavy(-1))
            await good.receive()


@pytest.mark.fault("R22")
@pytest.mark.parametrize("variant", list(Variant))
async def test_nothing_is_left_after_many_disconnects(serve: Serve, variant: Variant) -> None:
    served = await serve()
    served.server.publish(world(size=20))

    async def visit(number: int) -> None:
        async with raw_stream(served.port, variant, node_id=f"n{number}") as client:
            if number % 3 == 0:
                await client.send_bytes(b"\xff\xff\xff")
                await client.status()
            else:
                await client.ask(CLUSTER)
                if number % 3 == 1:
                    await client.receive()

    async def visits(count: int) -> None:
        for start in range(0, count, 50):
            await asyncio.gather(*(visit(start + each) for each in range(50)))
        await until(lambda: served.streams == 0)
        gc.collect()

    await visits(100)
    tasks, memory = len(asyncio.all_tasks()), system.getrusage(system.RUSAGE_SELF).ru_maxrss
    await visits(600)
    assert len(asyncio.all_tasks()) <= tasks
    assert served.server.fleet().nodes == ()
    series = [each for family in served.registry.collect() for each in family.samples]
    assert len(series) < 80, "no series per node"
    assert system.getrusage(system.RUSAGE_SELF).ru_maxrss - memory < 20_000, "kilobytes"


@pytest.mark.fault("R21")
async def test_many_clients_at_once_share_one_encoding(serve: Serve) -> None:
    served = await serve()
    served.server.publish(world(size=100))
    lags: list[float] = []

    async def watch_lag() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            lags.append(time.monotonic() - before)

    watcher = asyncio.create_task(watch_lag())
    async with AsyncExitStack() as stack:
        started = time.monotonic()

        async def join(number: int) -> None:
            client = await stack.enter_async_context(
                raw_stream(served.port, Variant.SOTW, node_id=f"n{number}")
            )
            await client.ask(CLUSTER)
            assert len((await client.receive(10)).names) == 100

        await asyncio.gather(*(join(number) for number in range(200)))
        assert time.monotonic() - started < 10
        assert len(served.server.fleet().nodes) == 200
        assert served.value("trimtab_xds_encodes_total", type="cds") == 1
    watcher.cancel()


@pytest.mark.fault("R28")
async def test_stop_is_quick_with_open_streams(serve: Serve) -> None:
    served = await serve()
    served.server.publish(world())
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(raw_stream(served.port, variant, node_id=f"{variant}{number}"))
            for variant in Variant
            for number in range(5)
        ]
        for client in clients:
            await client.ask(CLUSTER)
            await client.receive()
        started = time.monotonic()
        await served.server.stop(5)
        assert time.monotonic() - started < 1
        assert {await client.status() for client in clients} == {grpc.StatusCode.OK}
    assert served.streams == 0


async def test_changes_are_announced(serve: Serve) -> None:
    served = await serve()
    served.server.publish(world())
    async with raw_stream(served.port, Variant.SOTW) as client:
        await client.ask(CLUSTER)
        response = await client.receive()
        await until(lambda: served.changes == 1)
        await client.ack(response)
        await until(lambda: served.changes == 2)
    await until(lambda: served.changes == 3)
    assert served.value("trimtab_xds_ack_seconds_count", type="cds") == 1
    assert served.value("trimtab_xds_pushes_total", type="cds") == 1
    assert served.value("trimtab_xds_push_bytes_total", type="cds") > 0


async def test_unknown_types_are_counted(serve: Serve) -> None:
    served = await serve()
    async with raw_stream(served.port, Variant.SOTW) as client:
        await client.ask("type.googleapis.com/nobody.knows", ["a"])
        await until(lambda: served.value("trimtab_xds_unknown_type_requests_total") == 1)


def frame(kind: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame on stream 0 without flags."""
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload


@pytest.mark.parametrize(("allowed_seconds", "expected"), [(0.02, "welcome"), (300.0, "goodbye")])
async def test_pings_of_a_quiet_client_are_welcome_within_the_limit(
    serve: Serve, allowed_seconds: float, expected: str
) -> None:
    """gRPC's own limit of 300 s is the counter-check: there a few pings draw GOAWAY."""
    settings_frame, ping = 4, 6
    served = await serve(min_ping_interval_seconds=allowed_seconds)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings_frame))
    is_closed = False
    try:
        for _ in range(6):
            writer.write(frame(ping, b"quiet..."))
            await asyncio.sleep(0.04)
        async with asyncio.timeout(0.3):
            while await reader.read(1000):
                pass
        is_closed = True
    except OSError as error:
        is_closed = not isinstance(error, TimeoutError)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    assert is_closed is (expected == "goodbye")


@pytest.mark.fault("R25")
def test_plaintext_stays_on_loopback() -> None:
    for address in ("0.0.0.0", "10.0.0.1", "::", "example.org"):  # noqa: S104 - the point of the test
        with pytest.raises(SettingsError, match="is_plaintext_allowed"):
            Served(address=address)
        Served(address=address, is_plaintext_allowed=True)
    for address in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        Served(address=address)


async def test_a_taken_port_is_a_settings_error(serve: Serve) -> None:
    served = await serve()
    with pytest.raises(SettingsError, match="cannot listen"):
        await serve(port=served.port)
