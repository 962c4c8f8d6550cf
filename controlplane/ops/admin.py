"""The admin API: metrics, health and everything the command line shows, over HTTP, read only.

Changes go through the document store, so there is nothing here to authorise. A low-level server and a
table of routes, not an application framework: every answer, errors included, leaves by one door that
writes strict JSON, names no versions and shows no stack trace. A request whose ``Host`` is a foreign
name is refused: a page in a browser can make its own name point to 127.0.0.1 (DNS rebinding), but it
cannot make the browser hide that name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from controlplane.config import AdminSettings
from controlplane.ops.routes import ROUTES
from controlplane.ops.strict_json import encode
from controlplane.ops.views import SCHEMA_VERSION
from controlplane.runtime.state import StateReader

MAX_PATH_BYTES = 4096
SHUTDOWN_SECONDS = 1.0

_HEADERS: Mapping[str, str] = {
    "Server": "trimtab",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


class AdminServer:
    """Serves the admin API on one address."""

    def __init__(self, *, settings: AdminSettings, state: StateReader, registry: CollectorRegistry) -> None:
        """Prepare; nothing listens yet. `registry` is what ``/metrics`` shows."""
        self._settings = settings
        self._state = state
        self._registry = registry
        self._runner: web.ServerRunner | None = None
        self._log = structlog.get_logger("trimtab.admin")

    async def start(self) -> int:
        """Listen; gives the port, which is the system's choice if the setting is 0.

        Raises:
            OSError: if the address cannot be bound.
        """
        runner = web.ServerRunner(
            _PlainServer(self._handle, access_log=None, debug=False, lingering_time=0.0),
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, self._settings.address, self._settings.port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        port = int(runner.addresses[0][1])
        if not _is_loopback(self._settings.address):
            self._log.warning("admin_not_on_loopback", address=self._settings.address, port=port)
        self._log.info("admin_listening", address=self._settings.address, port=port)
        return port

    async def stop(self) -> None:
        """Stop listening and close all connections; does nothing if not started."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; every check is made before any state is read."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        if request.path == "/metrics":
            return self._metrics(request)
        parts = tuple(unquote(part) for part in request.rel_url.raw_path.strip("/").split("/"))
        for route in ROUTES:
            variables = route.match(parts)
            if variables is not None:
                found = route.answer(self._state, variables, request.query)
                if found.document is None:
                    return _problem(HTTPStatus.NOT_FOUND, found.missing)
                return _respond(found.status, found.document)
        return _problem(HTTPStatus.NOT_FOUND, f"there is no `{request.path}`; `/` lists what there is")

    def _refusal(self, request: web.BaseRequest) -> web.Response | None:
        if not self._is_own_host(request):
            return _problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the `Host` header is not an address of this server; `admin.allowed_hosts` can add names",
            )
        if request.method not in {"GET", "HEAD"}:
            refused = _problem(HTTPStatus.METHOD_NOT_ALLOWED, "this API is read only")
            refused.headers["Allow"] = "GET, HEAD"
            return refused
        if request.body_exists:
            refused = _problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this API takes no request body")
            refused.force_close()
            return refused
        if len(request.raw_path) > MAX_PATH_BYTES:
            return _problem(HTTPStatus.REQUEST_URI_TOO_LONG, "the path is too long")
        return None

    def _is_own_host(self, request: web.BaseRequest) -> bool:
        """Accept loopback, the configured names, and the address that the connection came in on."""
        named = _host_of(request.headers.get("Host", ""))
        if named in {"localhost", self._settings.address.lower(), *self._allowed()}:
            return True
        own = request.transport.get_extra_info("sockname") if request.transport else None
        return _is_loopback(named) or (own is not None and named == str(own[0]).lower())

    def _allowed(self) -> set[str]:
        return {name.lower() for name in self._settings.allowed_hosts}

    def _metrics(self, request: web.BaseRequest) -> web.Response:
        encoder, content_type = choose_encoder(request.headers.get("Accept", ""))
        body = encoder(self._registry)
        return web.Response(body=body, headers={**_HEADERS, "Content-Type": content_type})


class _PlainHandler(web.RequestHandler):
    """aiohttp's connection handler, with its own error page replaced.

    aiohttp answers malformed HTTP, and exceptions of a handler, by itself: with its version in a header
    and, under a debugging event loop, with a traceback. It still logs them.
    """

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)
        refused = _problem(HTTPStatus(status), HTTPStatus(status).phrase.lower())
        refused.force_close()
        return refused


class _PlainServer(web.Server):
    """aiohttp's server, with `_PlainHandler` for each connection."""

    def __call__(self) -> web.RequestHandler:
        return _PlainHandler(self, loop=self._loop, **self._kwargs)


def _respond(status: HTTPStatus, document: Any) -> web.Response:  # noqa: ANN401 - JSON
    headers = {**_HEADERS, "Content-Type": "application/json"}
    return web.Response(status=status.value, body=encode(document) + b"\n", headers=headers)


def _problem(status: HTTPStatus, message: str) -> web.Response:
    return _respond(status, {"schema_version": SCHEMA_VERSION, "error": message})


def _host_of(header: str) -> str:
    """Take the port off a ``Host`` header; an IPv6 address loses its brackets."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
