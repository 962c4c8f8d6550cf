"""A real Prometheus for tests: fast scrapes, data in a temporary directory.

It begins to scrape about five seconds after its start, whatever the interval: share one server among
tests where that is possible, and wait with `PrometheusServer.wait_for`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.process import Server, eventually, find_tool, free_port, running

SCRAPE_SECONDS = 0.2
_TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class Target:
    """One page to scrape. `labels` override those Prometheus would attach (``instance``, ``job``)."""

    address: str
    path: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PrometheusServer:
    """A Prometheus that a test may kill and start again on the same port and data."""

    port: int
    directory: Path
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _server: Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def configure(self, targets: Sequence[Target], *, scrape_seconds: float = SCRAPE_SECONDS) -> None:
        """Write what the next start reads."""
        self.directory.mkdir(parents=True, exist_ok=True)
        text = configuration(targets, scrape_seconds=scrape_seconds)
        (self.directory / "prometheus.yml").write_text(text)

    async def start(self) -> None:
        """Start the server and wait until it answers."""
        self._server = await self._stack.enter_async_context(
            running(self._command(), is_ready=self._is_ready)
        )

    async def kill(self) -> None:
        """End the server as a crash would."""
        await self._stack.aclose()
        self._stack = contextlib.AsyncExitStack()

    async def query(self, text: str) -> list[dict[str, Any]]:
        """Evaluate PromQL now, through the HTTP API directly."""
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.get(f"{self.url}/api/v1/query", params={"query": text}) as answer,
        ):
            body = await answer.json()
            assert body["status"] == "success", body
            return list(body["data"]["result"])

    async def wait_for(self, text: str, *, rows: int = 1, seconds: float = 20.0) -> None:
        """Wait until a query gives at least so many rows."""

        async def has_rows() -> bool:
            return len(await self.query(text)) >= rows

        await eventually(has_rows, seconds=seconds, interval=0.1)

    def _command(self) -> list[str]:
        return [
            find_tool("prometheus"),
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=error",
        ]

    async def _is_ready(self) -> bool:
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.get(f"{self.url}/-/ready") as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


def configuration(targets: Sequence[Target], *, scrape_seconds: float = SCRAPE_SECONDS) -> str:
    """Write a configuration (JSON is YAML too)."""
    interval = f"{round(scrape_seconds * 1000)}ms"
    return json.dumps(
        {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [
                {
                    "job_name": "test",
                    "honor_timestamps": True,
                    "static_configs": [
                        {
                            "targets": [target.address],
                            "labels": {"__metrics_path__": target.path, **target.labels},
                        }
                        for target in targets
                    ],
                }
            ],
        }
    )


@contextlib.asynccontextmanager
async def prometheus_server(
    directory: Path, targets: Sequence[Target], *, scrape_seconds: float = SCRAPE_SECONDS
) -> AsyncIterator[PrometheusServer]:
    """Run a Prometheus that scrapes `targets` until the block ends."""
    server = PrometheusServer(free_port(), directory)
    server.configure(targets, scrape_seconds=scrape_seconds)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()
