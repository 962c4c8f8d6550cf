"""A real Envoy that takes everything over ADS."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.xds.server.messages import Variant

PATIENCE = 30.0


class Envoy:
    """One process and its admin port."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._address_file = folder / "admin.txt"
        self._log = folder / "envoy.log"

    async def get(self, path: str) -> str:
        """Read one admin page."""
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> str:
        address = self._address_file.read_text()
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            body: bytes = answer.read()
            return body.decode()

    async def stat(self, name: str) -> int:
        """Read one counter or gauge; 0 until it exists."""
        for line in (await self.get(f"/stats?filter=^{name}$")).splitlines():
            key, _, value = line.partition(": ")
            if key == name:
                return int(value)
        return 0

    async def weights(self, cluster: str) -> dict[str, int]:
        """Endpoint → weight as Envoy holds it."""
        clusters: dict[str, Any] = json.loads(await self.get("/clusters?format=json"))
        return {
            str(host["address"]["socket_address"]["port_value"]): host["weight"]
            for each in clusters["cluster_statuses"]
            if each["name"] == cluster
            for host in each.get("host_statuses", [])
        }

    async def port(self, listener: str) -> int:
        """Read the port of a listener."""
        listeners: dict[str, Any] = json.loads(await self.get("/listeners?format=json"))
        for each in listeners["listener_statuses"]:
            if each["name"] == listener:
                return int(each["local_address"]["socket_address"]["port_value"])
        return 0

    async def until(self, condition: Callable[[], Any], expected: object = True) -> None:  # noqa: FBT002 - a value
        """Wait for a condition, asked again every few milliseconds."""
        deadline = time.monotonic() + PATIENCE
        got: object = None
        while time.monotonic() < deadline:
            try:
                got = await condition()
            except OSError:
                got = "no answer"
            if got == expected:
                return
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            await asyncio.sleep(0.05)
        pytest.fail(f"waited for {expected!r}, got {got!r}\n{self._log.read_text()[-3000:]}")


def bootstrap(xds_port: int, variant: Variant, node_id: str) -> dict[str, Any]:
    http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    return {
        "node": {"id": node_id, "cluster": "test"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC" if variant is Variant.SOTW else "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}],
            },
            "cds_config": source,
            "lds_config": source,
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "xds",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": {
                        http2: {
                            "@type": f"type.googleapis.com/{http2}",
                            "explicit_http_config": {"http2_protocol_options": {}},
                        }
                    },
                    "load_assignment": {
                        "cluster_name": "xds",
                        "endpoints": [
                            {
                                "lb_endpoints": [
                                    {
                                        "endpoint": {
                                            "address": {
                                                "socket_address": {
                                                    "address": "127.0.0.1",
                                                    "port_value": xds_port,
                                                }
                                            }
                                        }
                                    }
                                ]
                            }
                        ],
                    },
                }
            ]
        },
    }


@asynccontextmanager
async def running_envoy(
    folder: Path, xds_port: int, variant: Variant, *, node_id: str = "envoy-1"
) -> AsyncIterator[Envoy]:
    """Run an Envoy until the block ends."""
    config = folder / "bootstrap.json"
    config.write_text(json.dumps(bootstrap(xds_port, variant, node_id)))
    command = ["envoy", "-c", str(config), "--disable-hot-restart", "--concurrency", "1", "-l", "info"]
    command += ["--admin-address-path", str(folder / "admin.txt"), "--log-path", str(folder / "envoy.log")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - returns at once
    try:
        yield Envoy(process, folder)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
