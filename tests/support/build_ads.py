"""The least ADS server that can hand one Envoy a snapshot, and the Envoy that asks it.

It speaks delta only, to one client, and sends whole types. What matters here is what Envoy says of the
bytes; the protocol's own rules are tested elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import grpc
import yaml
from envoy_data_plane.envoy.service.discovery.v3 import DeltaDiscoveryRequest, DeltaDiscoveryResponse
from envoy_data_plane.envoy.service.discovery.v3 import Resource as DeltaResource
from envoy_data_plane.google.protobuf import Any as Packed

from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, Snapshot
from tests.support.process import ROOT, eventually, find_tool, free_port, running

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
SECONDS = 20.0
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class Refused(Exception):
    """Envoy refused a type; the message is its own."""


class DeltaAds(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Serves the snapshot it was last told to push."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._subscribed: defaultdict[str, set[str]] = defaultdict(set)
        self._verdicts: dict[str, str] = {}
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._nonce = 0
        self._pushed: Snapshot | None = None

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method != ADS:
            return None
        return grpc.stream_stream_rpc_method_handler(self._stream)

    async def _stream(self, requests: AsyncIterator[bytes], context: Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send(context))
            async for body in requests:
                await self._take(DeltaDiscoveryRequest.parse(body))
            sending.cancel()

    async def _send(self, context: Context) -> None:
        while True:
            await context.write(await self._outbox.get())

    async def _take(self, request: DeltaDiscoveryRequest) -> None:
        async with self._changed:
            names = self._subscribed[request.type_url]
            names |= set(request.resource_names_subscribe)
            names -= set(request.resource_names_unsubscribe)
            if request.response_nonce:
                detail = request.error_detail
                self._verdicts[request.response_nonce] = detail.message if detail else ""
            self._changed.notify_all()

    async def push(self, snapshot: Snapshot) -> None:
        """Send what changed, in order: clusters and endpoints, and after their ACKs listeners and routes.

        Endpoints do not wait for the clusters' ACK: a running Envoy holds it back until the changed
        clusters are warm, for which it needs their endpoints.

        Raises:
            Refused: with Envoy's words.
            TimeoutError: if Envoy does not ask or answer.
        """
        before, self._pushed = self._pushed, snapshot
        is_cluster_changed = not before or before.sets[CLUSTER].version != snapshot.sets[CLUSTER].version
        for step in ((CLUSTER, ENDPOINT), (LISTENER,), (ROUTE,)):
            sent = {}
            for url in step:
                is_same = before is not None and before.sets[url].version == snapshot.sets[url].version
                if not is_same or (url == ENDPOINT and is_cluster_changed):
                    sent[await self._send_type(snapshot, url, before)] = url
            for nonce, url in sent.items():
                await self._acked(nonce, url)

    async def _send_type(self, snapshot: Snapshot, url: str, before: Snapshot | None) -> str:
        named = snapshot.sets[url].resources
        gone = set(before.sets[url].resources) - set(named) if before else set()
        self._nonce += 1
        response = DeltaDiscoveryResponse(
            type_url=url,
            nonce=str(self._nonce),
            removed_resources=sorted(gone),
            resources=[
                DeltaResource(name=each.name, version=each.version, resource=Packed.parse(each.body))
                for each in named.values()
            ],
        )
        needed = set(named) if url in {ENDPOINT, ROUTE} else set()
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(
                lambda: (
                    any(self._verdicts.values())
                    or (url in self._subscribed and self._subscribed[url] >= needed)
                ),
            )
        self._outbox.put_nowait(bytes(response))
        return response.nonce

    async def _acked(self, nonce: str, url: str) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: nonce in self._verdicts)
        if self._verdicts[nonce]:
            raise Refused(f"{url.rpartition('.')[2]}: {self._verdicts[nonce]}")


class BuiltEnvoy:
    """A running Envoy with the sidecar's bootstrap, asking `ads`."""

    def __init__(self, ads: DeltaAds, admin_url: str, http: aiohttp.ClientSession) -> None:
        self.ads = ads
        self.http = http
        self._admin_url = admin_url

    async def port(self, listener: str) -> int:
        """Tell which port Envoy opened for a listener that asked for any."""
        for status in (await self.admin("/listeners?format=json"))["listener_statuses"]:
            if status["name"] == listener:
                return int(status["local_address"]["socket_address"]["port_value"])
        raise LookupError(listener)

    async def admin(self, path: str) -> Any:
        async with self.http.get(f"{self._admin_url}{path}") as answer:
            return await answer.json(content_type=None)

    async def versions(self, part: str) -> dict[str, str]:
        """Give name → version of one part of the dump, such as ``dynamic_active_clusters``."""
        dump = await self.admin(f"/config_dump?resource={part}")
        found = {}
        for each in dump.get("configs", []):
            state = each.get("active_state", each)
            body = state.get("cluster") or state.get("listener") or state.get("route_config")
            found[body["name"]] = state["version_info"]
        return found


async def settles(envoy: BuiltEnvoy, snapshot: Snapshot) -> None:
    """Wait until Envoy uses exactly this snapshot's clusters, listener and routes, with nothing warming."""
    intended = {
        part: {each.name: each.version for each in snapshot.sets[url].resources.values()}
        for part, url in (
            ("dynamic_active_clusters", CLUSTER),
            ("dynamic_listeners", LISTENER),
            ("dynamic_route_configs", ROUTE),
        )
    }

    async def is_in_use() -> bool:
        for part, versions in intended.items():
            if await envoy.versions(part) != versions:
                return False
        return not await envoy.versions("dynamic_warming_clusters")

    await eventually(is_in_use)


@contextlib.asynccontextmanager
async def built_envoy(folder: Path) -> AsyncIterator[BuiltEnvoy]:
    """Run Envoy against a `DeltaAds` of its own."""
    ads, server = DeltaAds(), grpc.aio.server()
    server.add_generic_rpc_handlers((ads,))
    xds_port, admin_port = server.add_insecure_port("127.0.0.1:0"), free_port()
    await server.start()
    bootstrap = yaml.safe_load((ROOT / "deploy/envoy/bootstrap-sidecar.yaml").read_text("utf-8"))
    (cluster,) = bootstrap["static_resources"]["clusters"]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    endpoint["endpoint"]["address"]["socket_address"]["port_value"] = xds_port
    bootstrap["admin"]["address"]["socket_address"]["port_value"] = admin_port
    (folder / "bootstrap.yaml").write_text(yaml.safe_dump(bootstrap), "utf-8")
    admin_url = f"http://127.0.0.1:{admin_port}"
    command = [find_tool("envoy"), "-c", str(folder / "bootstrap.yaml"), "--concurrency", "1"]
    command += ["--use-dynamic-base-id", "--log-level", "warning"]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http:

        async def is_up() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"{admin_url}/server_info") as answer:
                    return answer.status == 200
            return False

        try:
            async with running(command, is_ready=is_up):
                yield BuiltEnvoy(ads, admin_url, http)
        finally:
            await server.stop(0)
