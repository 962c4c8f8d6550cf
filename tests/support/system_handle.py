"""A running system: what people do to it, and what Trimtab and Envoy say."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from controlplane.demo.envoy import EnvoyAdmin
from controlplane.sim.fleet import SimFleet
from controlplane.sim.load import LoadGenerator, LoadOptions
from controlplane.store import framing
from tests.support.consul_server import ConsulServer
from tests.support.process import eventually
from tests.support.prometheus_server import PrometheusServer
from tests.support.system_options import PREFIX, SERVICE, SystemOptions
from tests.support.system_parts import PATIENCE_SECONDS, Part, Ports

_TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """All parts of a running system. `consul` and `prometheus` raise if there are none."""

    options: SystemOptions
    folder: Path
    ports: Ports
    fleet: SimFleet
    trimtab: Part
    envoy: Part
    envoy_admin: EnvoyAdmin
    session: aiohttp.ClientSession
    consul_or_none: ConsulServer | None
    prometheus_or_none: PrometheusServer | None

    @property
    def consul(self) -> ConsulServer:
        """The Consul agent."""
        assert self.consul_or_none is not None
        return self.consul_or_none

    @property
    def prometheus(self) -> PrometheusServer:
        """The Prometheus server."""
        assert self.prometheus_or_none is not None
        return self.prometheus_or_none

    @property
    def config(self) -> Path:
        """Trimtab's settings file."""
        return self.folder / "trimtab.toml"

    @property
    def state(self) -> Path:
        """Trimtab's state directory."""
        return self.folder / "state"

    @property
    def envoy_url(self) -> str:
        """Where requests go."""
        return f"http://127.0.0.1:{self.ports.listener}"

    @property
    def admin_url(self) -> str:
        """Trimtab's admin API."""
        return f"http://127.0.0.1:{self.ports.admin}"

    @property
    def names(self) -> tuple[str, ...]:
        """Endpoint ids of the model servers."""
        return self.fleet.names

    # What people do.

    async def write(self, name: str, body: Mapping[str, Any] | bytes | str) -> None:
        """Write a document below the root: ``strategies/chat``, ``canaries/chat``, ``control/freeze``."""
        content = body.encode() if isinstance(body, str) else body
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        if self.options.documents == "consul":
            await self.consul.put(f"{PREFIX}/{name}", content)
        else:
            _replace(self._file(name), content)

    async def delete(self, name: str) -> None:
        """Delete a document."""
        if self.options.documents == "consul":
            await self.consul.delete(f"{PREFIX}/{name}")
        else:
            self._file(name).unlink()

    async def write_strategy(self, document: Mapping[str, Any], *, service: str = SERVICE) -> None:
        """Write a strategy document."""
        await self.write(f"strategies/{service}", document)

    async def announce(self, services: Mapping[str, Sequence[str]]) -> None:
        """Tell discovery the endpoints (ids of model servers) of these services; each may have several.

        A file holds exactly these; Consul keeps the instances that are there already.
        """
        versions = {server.name: server.version for server in self.fleet.servers}
        if self.options.topology == "consul":
            for service, endpoints in services.items():
                for endpoint in endpoints:
                    address, _, port = endpoint.rpartition(":")
                    meta = {"version": versions[endpoint]}
                    await self.consul.register(service, address, int(port), meta=meta)
            return
        content = {
            service: {
                "endpoints": [
                    {
                        "address": endpoint.rpartition(":")[0],
                        "port": int(endpoint.rpartition(":")[2]),
                        "version": versions[endpoint],
                    }
                    for endpoint in endpoints
                ]
            }
            for service, endpoints in services.items()
        }
        _replace(self.folder / "endpoints.yaml", json.dumps({"services": content}).encode())

    async def cli(self, *arguments: str) -> tuple[int, str]:
        """Run a ``trimtab`` command; gives its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "controlplane", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, output.decode(errors="replace")

    def load(self, **options: Any) -> LoadGenerator:
        """Make a load on Envoy that has not begun; `options` are those of `LoadOptions`."""
        defaults: dict[str, Any] = {
            "requests_per_second": 24.0,
            "prompt_tokens": 50,
            "max_tokens": (6, 14),
            "max_turns": 3,
            "seed": 1,
        }
        return LoadGenerator(LoadOptions(url=self.envoy_url, **(defaults | options)))

    # What Trimtab says.

    async def get(self, path: str) -> dict[str, Any]:
        """Read Trimtab's admin API; also a refusal's document."""
        async with self.session.get(self.admin_url + path, timeout=_TIMEOUT) as answer:
            content: dict[str, Any] = await answer.json(content_type=None)
            return content

    async def service(self, service: str = SERVICE) -> dict[str, Any]:
        """Read what the admin API says of a service."""
        return await self.get(f"/v1/services/{service}")

    async def reported(self, service: str = SERVICE) -> dict[str, Any]:
        """Read what Trimtab wrote to ``status/<service>``; empty if nothing."""
        if self.options.documents == "consul":
            found = await self.consul.api("GET", f"kv/{PREFIX}/status/{service}?raw", ok=False)
            text = found if isinstance(found, str) else json.dumps(found)
        else:
            file = self._file(f"status/{service}")
            text = file.read_text() if file.exists() else ""
        content: dict[str, Any] = json.loads(text) if text else {}
        return content

    def decisions(self) -> list[dict[str, Any]]:
        """Read the records of ``decisions.log``, oldest first (of the newest file)."""
        file = self.state / "decisions.log"
        return list(framing.read(file)) if file.exists() else []

    async def acked(self) -> dict[str, tuple[str, str]]:
        """Resource type → (intended version, acknowledged version) of the first node; empty without one."""
        nodes = (await self.get("/v1/status"))["nodes"]
        types = nodes[0]["types"] if nodes else []
        return {each["type"]: (each["intended_version"], each["acked_version"]) for each in types}

    # What Envoy says.

    async def weights(self, cluster: str = SERVICE) -> dict[str, int]:
        """Endpoint → weight, from Envoy's ``/clusters``."""
        return {name: host.weight for name, host in (await self.envoy_admin.hosts(cluster)).items()}

    async def assigned(self, cluster: str = SERVICE) -> dict[str, int]:
        """Endpoint → weight, from Envoy's ``/config_dump?include_eds``."""
        dump = await self.envoy_get("/config_dump?include_eds")
        found: dict[str, int] = {}
        for part in dump["configs"]:
            for entry in part.get("dynamic_endpoint_configs", ()):
                config = entry["endpoint_config"]
                if config["cluster_name"] == cluster:
                    found |= _assignment(config)
        return found

    async def update_counters(self) -> dict[str, int]:
        """Read all counters of xDS updates that Envoy attempted, took or refused."""
        kinds = (".update_attempt", ".update_success", ".update_rejected", ".update_failure")
        counters = await self.envoy_admin.counters("")
        return {name: value for name, value in counters.items() if name.endswith(kinds)}

    async def envoy_get(self, path: str) -> dict[str, Any]:
        """Read one page of Envoy's admin API as JSON."""
        url = f"http://127.0.0.1:{self.ports.envoy_admin}{path}"
        async with self.session.get(url, timeout=_TIMEOUT) as answer:
            content: dict[str, Any] = await answer.json(content_type=None)
            return content

    async def until(
        self, condition: Callable[[], Awaitable[object]], *, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Wait until a condition holds; a peer that does not answer is one that does not hold.

        Raises:
            AssertionError: if it does not in time, with the end of Trimtab's log.
        """

        async def holds() -> bool:
            try:
                return bool(await condition())
            except (aiohttp.ClientError, TimeoutError):
                return False

        try:
            await eventually(holds, seconds=seconds, interval=0.05)
        except TimeoutError as error:
            log = self.trimtab.output[-4000:]
            raise AssertionError(f"did not happen in {seconds} s:\n{log}") from error

    async def until_served(self, cluster: str = SERVICE, *, endpoints: Sequence[str] | None = None) -> None:
        """Wait until Envoy has exactly these endpoints (all, by default) in a cluster, and listens."""
        wanted = set(self.names if endpoints is None else endpoints)

        async def is_served() -> bool:
            return set(await self.weights(cluster)) == wanted and await self.envoy_admin.is_ready()

        await self.until(is_served)

    def _file(self, name: str) -> Path:
        return self.folder / "documents" / (f"{name}.json" if not name.startswith("control/") else name)


def _assignment(config: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for locality in config.get("endpoints", ()):
        for each in locality.get("lb_endpoints", ()):
            address = each["endpoint"]["address"]["socket_address"]
            found[f"{address['address']}:{address['port_value']}"] = int(each["load_balancing_weight"])
    return found


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    os.replace(draft, path)  # noqa: PTH105 - atomic on purpose, and named so
