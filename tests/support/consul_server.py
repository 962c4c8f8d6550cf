"""A real Consul agent (one server, in memory) for tests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.process import Server, find_tool, free_port, running

_TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(slots=True)
class ConsulServer:
    """A Consul agent that a test may kill and start again on the same ports.

    `api` speaks the HTTP API directly, so that a test does not lean on the client under test.
    """

    http_port: int
    server_port: int
    serf_lan_port: int
    serf_wan_port: int
    config_file: Path | None = None
    data_directory: Path | None = None
    token: str = ""
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _server: Server | None = None

    @property
    def address(self) -> str:
        """``host:port`` of the HTTP API."""
        return f"127.0.0.1:{self.http_port}"

    async def start(self) -> None:
        """Start the agent and wait until it takes writes; empty unless it has a data directory."""
        self._server = await self._stack.enter_async_context(
            running(self._command(), is_ready=self._has_leader)
        )

    async def kill(self) -> None:
        """End the agent as a crash would."""
        await self._stack.aclose()
        self._stack = contextlib.AsyncExitStack()

    async def api(
        self, method: str, path: str, *, body: object = None, raw: bytes | None = None, ok: bool = True
    ) -> Any:
        """Call ``/v1/<path>``: `body` is sent as JSON, `raw` as it is. Gives the decoded answer.

        Raises:
            aiohttp.ClientResponseError: if the answer is an error and `ok` is true.
        """
        headers = {"X-Consul-Token": self.token} if self.token else {}
        content = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.request(
                method, f"http://{self.address}/v1/{path}", data=content, headers=headers
            ) as answer,
        ):
            if ok:
                answer.raise_for_status()
            text = await answer.text()
            return json.loads(text) if text and answer.content_type == "application/json" else text

    async def put(self, key: str, value: bytes | str) -> None:
        """Write a KV key."""
        await self.api("PUT", f"kv/{key}", raw=value.encode() if isinstance(value, str) else value)

    async def delete(self, key: str, *, recurse: bool = False) -> None:
        """Delete a KV key, or all below it."""
        await self.api("DELETE", f"kv/{key}{'?recurse' if recurse else ''}")

    async def register(
        self,
        service: str,
        address: str,
        port: int,
        *,
        meta: Mapping[str, str] | None = None,
        tags: tuple[str, ...] = (),
        status: str = "passing",
    ) -> str:
        """Register an instance with one TTL check in the given state; gives the instance's id."""
        identity = f"{service}-{address}-{port}"
        await self.api(
            "PUT",
            "agent/service/register",
            body={
                "ID": identity,
                "Name": service,
                "Address": address,
                "Port": port,
                "Tags": list(tags),
                "Meta": dict(meta or {}),
                "Check": {"TTL": "1h", "Status": status},
            },
        )
        return identity

    async def deregister(self, identity: str) -> None:
        """Deregister an instance."""
        await self.api("PUT", f"agent/service/deregister/{identity}")

    def _command(self) -> list[str]:
        command = [
            find_tool("consul"),
            "agent",
            "-dev" if self.data_directory is None else "-server",
            "-bind=127.0.0.1",
            "-log-level=err",
            f"-http-port={self.http_port}",
            f"-server-port={self.server_port}",
            f"-serf-lan-port={self.serf_lan_port}",
            f"-serf-wan-port={self.serf_wan_port}",
            "-dns-port=-1",
            "-grpc-port=-1",
        ]
        if self.data_directory is not None:
            command += ["-bootstrap-expect=1", f"-data-dir={self.data_directory}"]
            command += ["-hcl=performance { raft_multiplier = 1 }"]  # elects itself in 1 s and not in 7
        if self.config_file is not None:
            command.append(f"-config-file={self.config_file}")
        return command

    async def _has_leader(self) -> bool:
        try:
            leader = await self.api("GET", "status/leader")
            nodes = await self.api("GET", "catalog/nodes")
        except (aiohttp.ClientError, TimeoutError):
            return False
        # A leader alone is not enough: its own node is registered a moment later, and moves the index.
        return bool(leader) and bool(nodes)


@contextlib.asynccontextmanager
async def consul_server(
    *, config_file: Path | None = None, data_directory: Path | None = None, token: str = ""
) -> AsyncIterator[ConsulServer]:
    """Run a Consul agent until the block ends.

    `token` is sent with `ConsulServer.api`, for agents whose configuration enables ACLs.
    """
    server = ConsulServer(
        http_port=free_port(),
        server_port=free_port(),
        serf_lan_port=free_port(),
        serf_wan_port=free_port(),
        config_file=config_file,
        data_directory=data_directory,
        token=token,
    )
    try:
        await server.start()
        yield server
    finally:
        await server.kill()
