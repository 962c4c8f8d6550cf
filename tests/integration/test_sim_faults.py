from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest

from controlplane.sim.engine import Fault
from controlplane.sim.fleet import SimFleet, SimOptions
from controlplane.sim.server import SimServer
from tests.support.sim_client import FAST, ask, chat, get, metrics, wait_until_idle
from tests.support.sim_wait import DEADLINE_SECONDS, eventually


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=DEADLINE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


@pytest.fixture
async def server() -> AsyncIterator[SimServer]:
    async with SimFleet(SimOptions(ports=(0,), profile=FAST)) as fleet:
        yield fleet.servers[0]


async def test_faults_are_switched_over_http(client: aiohttp.ClientSession, server: SimServer) -> None:
    url = f"http://{server.name}/sim/fault"
    async with client.post(url, json={"slow_factor": 4.0, "error_ratio": 1.0, "hang": False}) as response:
        assert await response.json() == {"slow_factor": 4.0, "error_ratio": 1.0, "hang": False}

    response, answer = await ask(client, server, chat("hello"))
    assert response.status == 500
    assert answer["error"]["message"] == "simulated failure"
    assert (await metrics(client, server))["vllm:request_success_total", "length"] == 0

    async with client.post(url, json={}) as response:
        assert (await response.json())["error_ratio"] == 0.0
    response, _ = await ask(client, server, chat("hello"))
    assert response.status == 200


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"slow_factor": 0}', b'{"error_ratio": 2}', b'{"hang": "maybe"}', b'{"unknown": 1}', b"NaN"],
)
async def test_a_bad_fault_is_refused_and_changes_nothing(
    client: aiohttp.ClientSession, server: SimServer, body: bytes
) -> None:
    async with client.post(f"http://{server.name}/sim/fault", data=body) as response:
        assert response.status == 400
    assert server.engine.fault == Fault()


async def test_about_the_wanted_share_of_requests_fails_and_the_seed_says_which(
    client: aiohttp.ClientSession,
) -> None:
    async def failures(seed: int) -> list[bool]:
        async with SimFleet(SimOptions(ports=(0,), profile=FAST, seed=seed)) as fleet:
            fleet.set_fault(fleet.names[0], Fault(error_ratio=0.5))
            statuses = [
                (await ask(client, fleet.servers[0], chat("x", max_tokens=1)))[0].status for _ in range(40)
            ]
        return [status == 500 for status in statuses]

    first, again, other = await failures(1), await failures(1), await failures(2)

    assert 8 <= sum(first) <= 32
    assert first == again != other


async def test_a_hanging_server_still_answers_health_and_metrics(
    client: aiohttp.ClientSession, server: SimServer
) -> None:
    server.set_fault(Fault(hang=True))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await ask(client, server, chat("hello"))

    assert (await get(client, server, "/health"))[0] == 200
    await wait_until_idle(server)
    assert (await metrics(client, server))["vllm:request_success_total", "abort"] == 1


async def test_a_client_that_goes_away_frees_its_place(
    client: aiohttp.ClientSession, server: SimServer
) -> None:
    body = chat("hello", max_tokens=4_000, stream=True)
    async with client.post(f"http://{server.name}/v1/chat/completions", json=body) as response:
        await response.content.readline()
        assert server.engine.running == 1

    await wait_until_idle(server)


async def test_a_cold_server_refuses_until_it_is_warm(client: aiohttp.ClientSession) -> None:
    profile = replace(FAST, cold_start_seconds=0.3)
    async with SimFleet(SimOptions(ports=(0,), profile=profile)) as fleet:
        server = fleet.servers[0]
        assert (await get(client, server, "/health"))[0] == 503
        assert (await ask(client, server, chat("hello")))[0].status == 503
        await eventually(lambda: not server.is_cold)
        assert (await get(client, server, "/health"))[0] == 200
        assert (await ask(client, server, chat("hello")))[0].status == 200
