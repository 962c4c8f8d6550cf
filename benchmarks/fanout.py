"""How many Envoys one process serves: memory of idle streams, and time from publishing to the last ACK.

Clients run in a process of their own, so that the figures are the server's.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
from prometheus_client import CollectorRegistry

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, median_of
from controlplane.config import XdsSettings
from controlplane.model.resources import CLUSTER, ENDPOINT, Resource, ResourceSet, Snapshot
from controlplane.xds.server import XdsServer
from controlplane.xds.server import discovery_pb2 as pb
from controlplane.xds.server.services import METHODS

STREAMS = (100, 500, 1000)
RESOURCE_BYTES = 3_000
ROUNDS = 10
PATIENCE = 60.0
_ADS = next(path for path in METHODS if path.endswith("/StreamAggregatedResources"))


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured with a number of streams."""

    streams: int
    connect_seconds: float
    """Until every client, all starting at once, had its first clusters and endpoints acknowledged."""
    idle_kilobytes: float
    """Resident memory per idle stream."""
    push_seconds: tuple[float, ...]
    """From `publish` of changed endpoints to the last ACK, each round."""
    loop_lag_seconds: float
    """The longest time the event loop was busy."""


def _snapshot(content: int) -> Snapshot:
    def one(type_url: str, mark: int) -> ResourceSet:
        body = mark.to_bytes(4, "big") * (RESOURCE_BYTES // 4)
        version = hashlib.blake2b(body, digest_size=8).hexdigest()
        return ResourceSet(type_url, version, {"a": Resource("a", version, body)})

    return Snapshot(str(content), {CLUSTER: one(CLUSTER, 1), ENDPOINT: one(ENDPOINT, content)})


async def _client(port: int, number: int, resource: str) -> None:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        untyped: Any = channel
        call = untyped.stream_stream(_ADS)()
        node = pb.Node(id=f"bench-{number}")
        await call.write(pb.DiscoveryRequest(node=node, type_url=CLUSTER).SerializeToString())
        await call.write(
            pb.DiscoveryRequest(type_url=ENDPOINT, resource_names=[resource]).SerializeToString()
        )
        while isinstance(body := await call.read(), bytes):
            response = pb.DiscoveryResponse.FromString(body)
            names = [resource] if response.type_url == ENDPOINT else []
            ack = pb.DiscoveryRequest(
                type_url=response.type_url, response_nonce=response.nonce, resource_names=names
            )
            await call.write(ack.SerializeToString())


async def _clients(port: int, count: int, resource: str) -> None:
    await asyncio.gather(*(_client(port, number, resource) for number in range(count)))


def client_process(port: int, count: int, resource: str = "a") -> None:
    """Hold streams that subscribe to all clusters and one's endpoints, and acknowledge what they get."""
    try:
        asyncio.run(_clients(port, count, resource))
    except grpc.aio.AioRpcError:
        return


def _resident_kilobytes() -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


class _Lag:
    """Watches how long the event loop is away."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.002)
            self.worst = max(self.worst, time.monotonic() - before - 0.002)


async def _acknowledged(registry: CollectorRegistry, acks: int) -> None:
    def count() -> float:
        return sum(
            registry.get_sample_value("trimtab_xds_acks_total", {"type": t}) or 0 for t in ("cds", "eds")
        )

    async with asyncio.timeout(PATIENCE):
        while count() < acks:  # noqa: ASYNC110 - counters announce nothing
            await asyncio.sleep(0.001)


async def _measure_one(count: int) -> Figures:
    registry = CollectorRegistry()
    server = XdsServer(settings=XdsSettings(port=0), registry=registry, clock=time.monotonic)
    port = await server.start()
    server.publish(_snapshot(1))
    before = _resident_kilobytes()
    lag = _Lag()
    watcher = asyncio.create_task(lag.watch())
    clients = multiprocessing.get_context("spawn").Process(target=client_process, args=(port, count))
    clients.start()
    try:
        async with asyncio.timeout(PATIENCE):
            while not server.fleet().nodes:  # noqa: ASYNC110 - the process needs a while to start
                await asyncio.sleep(0.001)
        started = time.monotonic()
        await _acknowledged(registry, 2 * count)
        connect = time.monotonic() - started
        idle = (_resident_kilobytes() - before) / count
        times = []
        for number in range(ROUNDS):
            started = time.monotonic()
            server.publish(_snapshot(2 + number))
            await _acknowledged(registry, (3 + number) * count)
            times.append(time.monotonic() - started)
    finally:
        watcher.cancel()
        await server.stop(1)
        clients.terminate()
        clients.join()
    return Figures(count, connect, idle, tuple(times), lag.worst)


def _measure_in_process(count: int, out: Connection) -> None:
    out.send(asyncio.run(_measure_one(count)))


def _isolated(count: int) -> Figures:
    """Measure in a fresh process, so that memory is not that of the run before."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_in_process, args=(count, sender))
    process.start()
    sender.close()
    try:
        figures: Figures = receiver.recv()
    finally:
        process.join()
    return figures


def measure(streams: tuple[int, ...] = STREAMS) -> Mapping[str, Figures]:
    """Measure each number of streams; keys are such as ``1000 streams``."""
    return {f"{count} streams": _isolated(count) for count in streams}


def figures() -> list[Figure]:
    """Give the figures of a run."""
    found = []
    for streams, each in measure().items():
        pushed = [1_000 * seconds for seconds in each.push_seconds]
        found += [
            median_of(f"publish → last ACK, {streams}", pushed, "ms"),
            Figure(f"all served from a cold start, {streams}", each.connect_seconds, "s"),
            Figure(f"server memory per stream, {streams}", each.idle_kilobytes, "kB"),
            Figure(f"longest wait of the event loop, {streams}", 1_000 * each.loop_lag_seconds, "ms"),
        ]
    return found


def main() -> None:
    """Print the table."""
    print("| streams | all served | memory per stream | push → last ACK, median | worst | loop lag |")
    print("|---|---|---|---|---|---|")
    for each in measure(tuple(map(int, sys.argv[1:])) or STREAMS).values():
        pushed = [1_000 * seconds for seconds in each.push_seconds]
        print(
            f"| {each.streams} | {each.connect_seconds:.2f} s | {each.idle_kilobytes:.0f} kB "
            f"| {statistics.median(pushed):.0f} ms | {max(pushed):.0f} ms "
            f"| {each.loop_lag_seconds * 1000:.0f} ms |"
        )


if __name__ == "__main__":
    main()
