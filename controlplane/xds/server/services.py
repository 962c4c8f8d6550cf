"""The gRPC methods: the aggregated service and one service per type, each in both variants.

Registered as generic handlers that pass bytes through, because encoded responses are shared between
streams; a generated service base would encode each message again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from controlplane.model.resources import CLUSTER, ENDPOINT, EXTENSION, LISTENER, ROUTE, RUNTIME, SECRET
from controlplane.xds.server.messages import Variant

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Serve: TypeAlias = Callable[["Method", Context], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Method:
    """One gRPC method. `type_url` is empty for the aggregated service."""

    path: str
    type_url: str
    variant: Variant


_SERVICES = (
    ("discovery.v3.AggregatedDiscoveryService", "AggregatedResources", ""),
    ("cluster.v3.ClusterDiscoveryService", "Clusters", CLUSTER),
    ("endpoint.v3.EndpointDiscoveryService", "Endpoints", ENDPOINT),
    ("listener.v3.ListenerDiscoveryService", "Listeners", LISTENER),
    ("route.v3.RouteDiscoveryService", "Routes", ROUTE),
    ("secret.v3.SecretDiscoveryService", "Secrets", SECRET),
    ("runtime.v3.RuntimeDiscoveryService", "Runtime", RUNTIME),
    ("extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", EXTENSION),
)

METHODS: Mapping[str, Method] = {
    method.path: method
    for service, noun, type_url in _SERVICES
    for verb, variant in (("Stream", Variant.SOTW), ("Delta", Variant.DELTA))
    for method in [Method(f"/envoy.service.{service}/{verb}{noun}", type_url, variant)]
}


class DiscoveryHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Find the method of a call; unknown ones are left to gRPC, which answers UNIMPLEMENTED."""

    def __init__(self, *, serve: Serve) -> None:
        self._handlers = {path: self._handler(method, serve) for path, method in METHODS.items()}

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Give the handler of a call."""
        return self._handlers.get(handler_call_details.method)

    @staticmethod
    def _handler(method: Method, serve: Serve) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def handle(_requests: object, context: Context) -> None:
            await serve(method, context)

        return grpc.stream_stream_rpc_method_handler(handle)
