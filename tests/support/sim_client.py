"""A client of simulated servers."""

from __future__ import annotations

from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from controlplane.sim.engine import Profile
from controlplane.sim.server import SimServer
from tests.support.sim_wait import eventually

FAST = Profile(decode_tokens_per_second=500.0, prefill_tokens_per_second=100_000.0)


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"messages": messages, "max_tokens": 4, "ignore_eos": True, **fields}


async def ask(
    client: aiohttp.ClientSession, server: SimServer, body: Any, *, path: str = "/v1/chat/completions"
) -> tuple[aiohttp.ClientResponse, Any]:
    headers = {"x-session-id": "s1"}
    async with client.post(f"http://{server.name}{path}", json=body, headers=headers) as response:
        if response.content_type == "text/event-stream":
            return response, [line async for line in response.content if line.strip()]
        return response, await response.json()


async def get(client: aiohttp.ClientSession, server: SimServer, path: str) -> tuple[int, str]:
    async with client.get(f"http://{server.name}{path}") as response:
        return response.status, await response.text()


async def metrics(client: aiohttp.ClientSession, server: SimServer) -> dict[tuple[str, str], float]:
    """Samples by name and, where there is one, finished_reason or le."""
    _, text = await get(client, server, "/metrics")
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["engine"] == "0"
            assert sample.labels["model_name"] == "sim"
            part = sample.labels.get("finished_reason") or sample.labels.get("le") or ""
            found[sample.name, part] = sample.value
    return found


async def wait_until_idle(server: SimServer) -> None:
    await eventually(lambda: not server.engine.running and not server.engine.waiting)
