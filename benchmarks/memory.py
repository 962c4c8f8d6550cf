"""Resident memory of `trimtab serve`: idle with one small service, and with 100 streams of it.

The service has four endpoints. Documents and endpoints are files, and signals are scraped: the clients
of Consul and Prometheus are not part of the figure. Streams come from another process, as in `fanout`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fanout import client_process
from benchmarks.figure import Figure, median_of
from tests.support.system import SERVICE, System, SystemOptions, running_system

STREAMS = 100
READINGS = 10
SETTLE_SECONDS = 5.0
_CLUSTERS, _ENDPOINTS = "Cluster", "ClusterLoadAssignment"
_OPTIONS = SystemOptions(
    documents="directory", topology="file", signals="scrape", settings={"loop": {"interval_seconds": 5.0}}
)


def measure() -> dict[int, list[float]]:
    """Give readings in megabytes (10^6 bytes), some 0.5 s apart, by number of streams."""
    return asyncio.run(_measure())


async def _measure() -> dict[int, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with running_system(Path(folder), _OPTIONS) as system:
            await system.until_served()
            await system.envoy.kill()
            idle = await _resident(system)
            context = multiprocessing.get_context("spawn")
            clients = context.Process(target=client_process, args=(system.ports.xds, STREAMS, SERVICE))
            clients.start()
            try:
                await system.until(lambda: _all_acknowledged(system))
                return {0: idle, STREAMS: await _resident(system)}
            finally:
                clients.terminate()
                clients.join()


async def _all_acknowledged(system: System) -> bool:
    nodes = (await system.get("/v1/status"))["nodes"]
    served = 0
    for node in nodes:
        types = {each["type"]: each for each in node["types"]}
        served += all(types.get(kind, {}).get("acked_version") for kind in (_CLUSTERS, _ENDPOINTS))
    return served >= STREAMS


async def _resident(system: System) -> list[float]:
    await asyncio.sleep(SETTLE_SECONDS)
    readings = []
    for _ in range(READINGS):
        readings.append(_megabytes(system.trimtab.server.process.pid))
        await asyncio.sleep(0.5)
    return readings


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    resident = next(line for line in lines if line.startswith("VmRSS:"))
    return int(resident.split()[1]) * 1024 / 1e6


def figures() -> list[Figure]:
    """Give the figures of a run."""
    return [
        median_of(f"memory of trimtab serve, {f'{streams} streams' if streams else 'idle'}", readings, "MB")
        for streams, readings in measure().items()
    ]


if __name__ == "__main__":
    for figure in figures():
        print(f"{figure.measure}: {figure.value:.1f} MB")
