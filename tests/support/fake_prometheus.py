"""A Prometheus that answers queries as a test says: for faults the real one will not show on demand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class FakePrometheus:
    """`answer` handles every instant query; `queries` keeps their text, `headers` the newest ones."""

    answer: Answer
    port: int = 0
    queries: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(request.query["query"])
        self.headers = dict(request.headers)
        return await self.answer(request)


def vector(*rows: tuple[dict[str, str], Any], at: float = 1000.0) -> web.Response:
    """Answer with an instant vector of (labels, value text) evaluated at one time."""
    result = [{"metric": labels, "value": [at, value]} for labels, value in rows]
    return success({"resultType": "vector", "result": result})


def success(answer: object) -> web.Response:
    """Answer with any ``data``."""
    return web.Response(
        text=json.dumps({"status": "success", "data": answer}), content_type="application/json"
    )


@contextlib.asynccontextmanager
async def fake_prometheus(answer: Answer) -> AsyncIterator[FakePrometheus]:
    """Serve ``/api/v1/query`` on a free port until the block ends."""
    fake = FakePrometheus(answer)
    app = web.Application()
    app.router.add_get("/api/v1/query", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.port = int(runner.addresses[0][1])
        yield fake
    finally:
        await runner.cleanup()
