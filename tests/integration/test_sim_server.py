from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest

from controlplane.sim.exposition import FIRST_TOKEN_BUCKETS, INTER_TOKEN_BUCKETS, REQUEST_BUCKETS
from controlplane.sim.fleet import SimFleet, SimOptions
from controlplane.sim.server import SimServer
from tests.support.sim_client import FAST, ask, chat, get, metrics
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


async def test_an_answer_whole(client: aiohttp.ClientSession, server: SimServer) -> None:
    response, answer = await ask(client, server, chat("hello"))

    assert response.status == 200
    assert response.headers["x-served-by"] == server.name
    assert response.headers["x-version"] == "v1"
    assert response.headers["x-cache-hit"] == "0.0000"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(answer["choices"][0]["message"]["content"].split()) == 4
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


async def test_a_streamed_answer_is_the_same_token_by_token(
    client: aiohttp.ClientSession, server: SimServer
) -> None:
    _, whole = await ask(client, server, chat("hello"))
    _, lines = await ask(client, server, chat("hello", stream=True, stream_options={"include_usage": True}))

    assert lines[-1] == b"data: [DONE]\n"
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1])
    assert text == whole["choices"][0]["message"]["content"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, None, "length"]
    assert chunks[-1]["usage"]["completion_tokens"] == 4


async def test_a_completion(client: aiohttp.ClientSession, server: SimServer) -> None:
    _, answer = await ask(client, server, {"prompt": "once", "max_tokens": 2}, path="/v1/completions")
    _, lines = await ask(
        client, server, {"prompt": "once", "max_tokens": 2, "stream": True}, path="/v1/completions"
    )

    assert answer["object"] == "text_completion"
    streamed = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == answer["choices"][0]["text"]


async def test_the_next_turn_of_a_conversation_hits_the_cache(
    client: aiohttp.ClientSession, server: SimServer
) -> None:
    first = "tell me " * 50
    _, answer = await ask(client, server, chat(first))
    reply = answer["choices"][0]["message"]["content"]

    response, _ = await ask(client, server, chat(first, reply, "go on"))

    assert float(response.headers["x-cache-hit"]) > 0.9
    found = await metrics(client, server)
    assert found["vllm:prefix_cache_hits_total", ""] == server.engine.hit_tokens > 0
    assert found["vllm:prefix_cache_queries_total", ""] == server.engine.queried_tokens


async def test_metrics_have_the_names_labels_and_buckets_of_vllm(
    client: aiohttp.ClientSession, server: SimServer
) -> None:
    await ask(client, server, chat("hello"))
    await ask(client, server, chat("hello", stream=True))

    found = await metrics(client, server)

    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert found[f"vllm:{gauge}", ""] == 0
    assert found["vllm:request_success_total", "length"] == 2
    assert found["vllm:request_success_total", "stop"] == 0
    assert found["vllm:generation_tokens_total", ""] == 8
    assert found["vllm:prompt_tokens_total", ""] == 6
    for name, buckets, count in (
        ("time_to_first_token_seconds", FIRST_TOKEN_BUCKETS, 2),
        ("inter_token_latency_seconds", INTER_TOKEN_BUCKETS, 6),
        ("e2e_request_latency_seconds", REQUEST_BUCKETS, 2),
    ):
        assert found[f"vllm:{name}_count", ""] == count
        bounds = [float(le) for metric, le in found if metric == f"vllm:{name}_bucket"]
        assert bounds == [*buckets, float("inf")]


async def test_a_loaded_server_shows_its_batch_and_its_queue(client: aiohttp.ClientSession) -> None:
    profile = replace(FAST, max_running=2, decode_tokens_per_second=20.0)
    async with SimFleet(SimOptions(ports=(0,), profile=profile)) as fleet, asyncio.TaskGroup() as group:
        server = fleet.servers[0]
        for n in range(5):
            group.create_task(ask(client, server, chat(f"question {n}", max_tokens=10)))
        await eventually(lambda: server.engine.running == 2 and server.engine.waiting == 3)

        found = await metrics(client, server)

        assert found["vllm:num_requests_running", ""] == 2
        assert found["vllm:num_requests_waiting", ""] == 3
        assert found["vllm:kv_cache_usage_perc", ""] > 0


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"messages": [{"role": "user", "content": 7}]}'])
async def test_a_bad_request_is_refused_with_a_reason(
    client: aiohttp.ClientSession, server: SimServer, body: bytes
) -> None:
    async with client.post(f"http://{server.name}/v1/chat/completions", data=body) as response:
        assert response.status == 400
        assert "not a completion request" in (await response.json())["error"]["message"]


async def test_too_much_for_the_cache_the_queue_or_the_body_is_refused(
    client: aiohttp.ClientSession,
) -> None:
    profile = replace(FAST, kv_capacity_tokens=5_000, max_running=1, max_waiting=0)
    async with SimFleet(SimOptions(ports=(0,), profile=profile)) as fleet, asyncio.TaskGroup() as group:
        server = fleet.servers[0]
        url = f"http://{server.name}/v1/chat/completions"
        assert (await ask(client, server, chat("x" * 20_000)))[0].status == 400
        async with client.post(url, data=io.BytesIO(b"x" * 5_000_000)) as response:
            assert response.status == 413

        busy = group.create_task(ask(client, server, chat("hello", max_tokens=4_000)))
        await eventually(lambda: server.engine.running == 1)
        assert (await ask(client, server, chat("hello")))[0].status == 503
        busy.cancel()


async def test_the_state_tells_what_happened(client: aiohttp.ClientSession, server: SimServer) -> None:
    await ask(client, server, chat("hello"))
    await ask(client, server, {"messages": []})

    state = json.loads((await get(client, server, "/sim/state"))[1])

    assert state["name"] == server.name
    assert (state["requests"], state["errors"]) == (2, 1)
    assert state["sessions"] == {"s1": 2}
    assert 0 < state["busy_ratio"] <= 1
    assert state["cache_queried_tokens"] == 3
    assert state["fault"] == {"slow_factor": 1.0, "error_ratio": 0.0, "hang": False}
    models = json.loads((await get(client, server, "/v1/models"))[1])
    assert models["data"][0]["id"] == "sim"


async def test_a_faster_server_is_faster(client: aiohttp.ClientSession) -> None:
    profile = replace(FAST, decode_tokens_per_second=100.0)
    async with SimFleet(SimOptions(ports=(0, 0), speeds=(1.0, 4.0), profile=profile)) as fleet:
        loop = asyncio.get_running_loop()
        seconds = []
        for server in fleet.servers:
            began_at = loop.time()
            await ask(client, server, chat("hello", max_tokens=40))
            seconds.append(loop.time() - began_at)

    assert seconds[0] > 2 * seconds[1]
    assert seconds[0] >= 0.38


async def test_a_server_stopped_breaks_off_and_starts_again_on_its_port(
    client: aiohttp.ClientSession,
) -> None:
    async with SimFleet(SimOptions(ports=(0, 0), profile=FAST)) as fleet:
        server = fleet.server(fleet.names[1])
        body = chat("hello", max_tokens=4_000, stream=True)
        async with client.post(f"http://{server.name}/v1/chat/completions", json=body) as response:
            await response.content.readline()
            await server.stop()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        with pytest.raises(aiohttp.ClientError):
            await ask(client, server, chat("hello"))

        await server.start()

        assert (await ask(client, server, chat("hello")))[0].status == 200
        with pytest.raises(KeyError):
            fleet.server("nobody")
