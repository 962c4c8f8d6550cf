"""The admin API over real HTTP on a loopback socket."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controlplane import __version__
from controlplane.config import AdminSettings
from controlplane.ops.admin import AdminServer
from controlplane.ops.metrics import StateCollector
from tests.support import state_views as states


@dataclass(frozen=True, slots=True)
class Reply:
    """One raw HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def exchange(port: int, request: bytes) -> Reply:
    """Send raw bytes and read until the server closes."""
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        try:
            raw = await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Reply(int(first.split()[1]), headers, body)


async def get(
    port: int, path: str, *, host: str = "127.0.0.1", method: str = "GET", more: str = ""
) -> Reply:
    text = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"
    return await exchange(port, text.encode())


@dataclass(frozen=True, slots=True)
class Running:
    port: int
    state: states.FixedState


@pytest.fixture
async def admin() -> AsyncIterator[Running]:
    state = states.FixedState(states.view(), past=states.history())
    registry = CollectorRegistry()
    StateCollector(state=state, registry=registry)
    server = AdminServer(
        settings=AdminSettings(port=0, allowed_hosts=("trimtab.internal",)), state=state, registry=registry
    )
    port = await server.start()
    yield Running(port, state)
    await server.stop()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/healthz",
        "/readyz",
        "/v1/status",
        "/v1/nodes/edge%2F2",
        "/v1/services",
        "/v1/services/chat",
        "/v1/services/chat/weights",
        "/v1/services/chat/explain",
        "/v1/services/chat/explain/10.0.0.1:8000",
        "/v1/services/chat/history",
        "/v1/services/chat/canary",
        "/v1/canaries",
        "/v1/services/broken",
    ],
)
async def test_every_path_answers_json_with_a_schema_version(admin: Running, path: str) -> None:
    reply = await get(admin.port, path)
    assert reply.status == 200
    assert reply.json["schema_version"] == 1
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-store"


async def test_metrics_are_prometheus_text(admin: Running) -> None:
    reply = await get(admin.port, "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert b'trimtab_decision_age_seconds{service="chat"} 3.0' in reply.body


async def test_openmetrics_is_given_to_who_asks(admin: Running) -> None:
    accept = "Accept: application/openmetrics-text; version=1.0.0\r\n"
    reply = await get(admin.port, "/metrics", more=accept)
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.body.endswith(b"# EOF\n")


@pytest.mark.fault("R2")
async def test_not_ready_is_503_with_the_reason_but_alive(admin: Running) -> None:
    admin.state.current = states.view(is_ready=False, not_ready_reason="discovery has not answered yet")
    reply = await get(admin.port, "/readyz")
    assert reply.status == 503
    assert reply.json["reason"] == "discovery has not answered yet"
    assert (await get(admin.port, "/healthz")).status == 200


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/services/nope", "no service `nope` is known"),
        ("/v1/services/nope/weights", "no service `nope` is known"),
        ("/v1/services/nope/explain", "no service `nope` is known"),
        ("/v1/services/embed/explain", "nothing has been decided for service `embed` yet"),
        ("/v1/services/chat/explain/1.2.3.4:5", "service `chat` has no endpoint `1.2.3.4:5`"),
        ("/v1/services/embed/canary", "service `embed` has no canary"),
        ("/v1/nodes/nope", "no node `nope` is connected"),
        ("/v2", "there is no `/v2`"),
        ("/v1/../../etc/passwd", "there is no"),
    ],
)
async def test_what_is_not_there_is_404_with_a_clear_message(admin: Running, path: str, words: str) -> None:
    reply = await get(admin.port, path)
    assert reply.status == 404
    assert words in reply.json["error"]


async def test_history_without_documents_of_an_unknown_service_is_404(admin: Running) -> None:
    admin.state.histories["nope"] = ()
    assert (await get(admin.port, "/v1/services/nope/history")).status == 404


async def test_history_has_bodies_on_request(admin: Running) -> None:
    plain = (await get(admin.port, "/v1/services/chat/history")).json["documents"]
    whole = (await get(admin.port, "/v1/services/chat/history?bodies=1")).json["documents"]
    assert "body" not in plain[0]
    assert whole[0]["body"] == '{"a": 1}'


@pytest.mark.fault("R35")
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "10.9.9.9", ""])
async def test_a_foreign_host_is_refused(admin: Running, host: str) -> None:
    reply = await get(admin.port, "/v1/status", host=host)
    assert reply.status == 421
    assert admin.state.reads == 0


@pytest.mark.fault("R35")
@pytest.mark.parametrize(
    "host", ["localhost:18001", "127.0.0.1:5", "[::1]:18001", "127.8.8.8", "LOCALHOST", "trimtab.internal"]
)
async def test_loopback_and_allowed_names_are_served(admin: Running, host: str) -> None:
    assert (await get(admin.port, "/healthz", host=host)).status == 200


@pytest.mark.fault("R35")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_nothing_can_be_changed(admin: Running, method: str) -> None:
    reply = await get(admin.port, "/v1/services/chat", method=method)
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD"


@pytest.mark.fault("R35")
@pytest.mark.parametrize("more", ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"])
async def test_a_body_is_refused_before_it_is_read(admin: Running, more: str) -> None:
    # when a request announces a body and sends none of it
    reply = await get(admin.port, "/v1/status", more=more)
    # then the answer does not wait for it
    assert reply.status == 413


@pytest.mark.fault("R35")
async def test_an_internal_error_shows_nothing_of_the_inside(
    admin: Running, caplog: pytest.LogCaptureFixture
) -> None:
    # given a view that raises, under a debugging event loop
    admin.state.failure = RuntimeError("secret detail")
    asyncio.get_running_loop().set_debug(enabled=True)
    with caplog.at_level(logging.ERROR):
        replies = [await get(admin.port, path) for path in ("/v1/status", "/metrics")]
    # then the caller learns that it failed, the log learns why
    for reply in replies:
        assert reply.status == 500
        assert reply.json == {"schema_version": 1, "error": "internal server error"}
    assert "secret detail" in caplog.text


@pytest.mark.fault("R35")
@pytest.mark.parametrize(
    "raw",
    [
        b"GET /nope HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_no_answer_names_a_version_or_a_library(admin: Running, raw: bytes) -> None:
    reply = await exchange(admin.port, raw)
    assert reply.headers["server"] == "trimtab"
    everything = (repr(reply.headers) + reply.body.decode()).lower()
    assert "aiohttp" not in everything
    assert "python" not in everything
    assert __version__ not in everything
    assert "traceback" not in everything


async def test_head_has_headers_only(admin: Running) -> None:
    reply = await get(admin.port, "/v1/status", method="HEAD")
    assert (reply.status, reply.body) == (200, b"")


async def test_a_port_in_use_is_an_error_and_stop_may_come_twice(admin: Running) -> None:
    second = AdminServer(
        settings=AdminSettings(port=admin.port), state=admin.state, registry=CollectorRegistry()
    )
    with pytest.raises(OSError, match="address already in use"):
        await second.start()
    await second.stop()
    await second.stop()


async def test_stop_does_not_wait_for_an_idle_connection() -> None:
    # given a client that holds its connection open
    state = states.FixedState(states.view())
    server = AdminServer(settings=AdminSettings(port=0), state=state, registry=CollectorRegistry())
    port = await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    # when the server stops, then it is done at once
    async with asyncio.timeout(2):
        await server.stop()
    writer.close()
    await writer.wait_closed()
