"""An agent that speaks Consul's HTTP API from a script, for answers no healthy Consul gives."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer; `index=None` leaves the header out, `delay_seconds` holds it back."""

    body: bytes = b"[]"
    index: str | None = "1"
    status: int = 200
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    at_seconds: float
    path: str
    index: str | None
    token: str | None


@dataclass(slots=True)
class FakeAgent:
    """Answers each request with the next reply, and for ever with the last one.

    `is_holding` keeps that repetition back from blocking queries, as a real agent would.
    """

    script: list[Reply]
    is_holding: bool = True
    asked: list[Asked] = field(default_factory=list)
    address: str = ""
    is_done: bool = False
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(
            Asked(
                time.monotonic(),
                request.path,
                request.query.get("index"),
                request.headers.get("X-Consul-Token"),
            )
        )
        if self.is_done and self.is_holding and "index" in request.query:
            await self.closing.wait()
        reply = self.script[0] if len(self.script) == 1 else self.script.pop(0)
        self.is_done = reply is self.script[0]
        if reply.delay_seconds:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.closing.wait(), reply.delay_seconds)
        headers = {} if reply.index is None else {"X-Consul-Index": reply.index}
        return web.Response(body=reply.body, status=reply.status, headers=headers)


def kv(**values: str) -> bytes:
    """Write the answer of a recursive KV read; ``__`` in a name stands for ``/``."""
    return json.dumps(
        [
            {
                "Key": "t/" + name.replace("__", "/"),
                "Value": base64.b64encode(value.encode()).decode(),
                "ModifyIndex": 1,
                "Flags": 0,
            }
            for name, value in values.items()
        ]
    ).encode()


@contextlib.asynccontextmanager
async def fake_agent(*script: Reply, is_holding: bool = True) -> AsyncIterator[FakeAgent]:
    """Serve a script until the block ends."""
    agent = FakeAgent(list(script), is_holding=is_holding)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", agent.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        agent.address = f"{host}:{port}"
        yield agent
    finally:
        agent.closing.set()
        await runner.cleanup()
