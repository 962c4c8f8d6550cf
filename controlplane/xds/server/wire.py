"""Between bytes and values: requests decoded, responses encoded once and shared by streams."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from google.protobuf.message import DecodeError

from controlplane.model.resources import ENDPOINT
from controlplane.xds.cache.watch import Parcel
from controlplane.xds.server import discovery_pb2 as pb
from controlplane.xds.server.messages import Node, Push, Request, Variant

Decoded: TypeAlias = tuple[Request, Node | None]


def decode_sotw(body: bytes) -> Decoded | None:
    """Decode a ``DiscoveryRequest``; `None` if it is not one. The node is `None` when absent."""
    try:
        message = pb.DiscoveryRequest.FromString(body)
    except DecodeError:
        return None
    request = Request(
        type_url=message.type_url,
        nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
        names=tuple(message.resource_names),
    )
    return request, _node(message.node) if message.HasField("node") else None


def decode_delta(body: bytes) -> Decoded | None:
    """Decode a ``DeltaDiscoveryRequest``; `None` if it is not one. The node is `None` when absent."""
    try:
        message = pb.DeltaDiscoveryRequest.FromString(body)
    except DecodeError:
        return None
    request = Request(
        type_url=message.type_url,
        nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
        names=tuple(message.resource_names_subscribe),
        dropped=tuple(message.resource_names_unsubscribe),
        versions=dict(message.initial_resource_versions),
    )
    return request, _node(message.node) if message.HasField("node") else None


def _node(node: pb.Node) -> Node:
    version = node.user_agent_version
    if node.HasField("user_agent_build_version"):
        number = node.user_agent_build_version.version
        version = f"{number.major_number}.{number.minor_number}.{number.patch}"
    return Node(
        id=node.id,
        cluster=node.cluster,
        region=node.locality.region,
        zone=node.locality.zone,
        sub_zone=node.locality.sub_zone,
        user_agent=f"{node.user_agent_name} {version}".strip(),
    )


def encode_sotw(parcel: Parcel) -> bytes:
    """Encode a ``DiscoveryResponse`` without its nonce.

    A missing endpoint resource becomes an empty assignment, so that a cluster waiting for it does not
    wait for ever (xDS rule 10). Other types have no way to say "missing" than leaving it out.
    """
    bodies = [resource.body for resource in parcel.resources]
    if parcel.type_url == ENDPOINT:
        bodies += [_empty_assignment(name) for name in parcel.absent]
    version = f"{parcel.version}+interim" if parcel.is_interim else parcel.version
    return pb.DiscoveryResponse(
        version_info=version, resources=bodies, type_url=parcel.type_url
    ).SerializeToString(deterministic=True)


def encode_delta(parcel: Parcel) -> bytes:
    """Encode a ``DeltaDiscoveryResponse`` without its nonce."""
    return pb.DeltaDiscoveryResponse(
        system_version_info=parcel.version,
        resources=[
            pb.Resource(name=resource.name, version=resource.version, resource=resource.body)
            for resource in parcel.resources
        ],
        type_url=parcel.type_url,
        removed_resources=parcel.absent,
    ).SerializeToString(deterministic=True)


def _empty_assignment(name: str) -> bytes:
    assignment = pb.ClusterLoadAssignment(cluster_name=name)
    return pb.Any(type_url=ENDPOINT, value=assignment.SerializeToString()).SerializeToString()


Key: TypeAlias = tuple[Variant, str, str, tuple[str, ...], tuple[str, ...]]


class Encoder:
    """Encode each response once, whatever the number of streams that get it.

    Only the nonce differs between streams, and protobuf fields concatenate: it is appended. The memory
    holds the last few responses, by count and bytes.
    """

    def __init__(
        self, *, on_encode: Callable[[str], None], max_entries: int = 512, max_bytes: int = 64 * 1024 * 1024
    ) -> None:
        self._on_encode = on_encode
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bodies: OrderedDict[Key, bytes] = OrderedDict()
        self.held_bytes = 0
        """Size of the responses held."""

    def encode(self, push: Push, variant: Variant) -> bytes:
        """Give the complete bytes of a response."""
        nonce_field = pb.DiscoveryResponse if variant is Variant.SOTW else pb.DeltaDiscoveryResponse
        return self._body(push.parcel, variant) + nonce_field(nonce=push.nonce).SerializeToString()

    def _body(self, parcel: Parcel, variant: Variant) -> bytes:
        # Resource versions hash content, so together with the names they say what is inside.
        versions = tuple([resource.version for resource in parcel.resources])
        key = (variant, parcel.type_url, parcel.version, parcel.names, versions)
        body = self._bodies.get(key)
        if body is None:
            body = encode_sotw(parcel) if variant is Variant.SOTW else encode_delta(parcel)
            self._remember(key, body)
            self._on_encode(parcel.type_url)
        else:
            self._bodies.move_to_end(key)
        return body

    def _remember(self, key: Key, body: bytes) -> None:
        self._bodies[key] = body
        self.held_bytes += len(body)
        while len(self._bodies) > self._max_entries or (
            self.held_bytes > self._max_bytes and len(self._bodies) > 1
        ):
            _, dropped = self._bodies.popitem(last=False)
            self.held_bytes -= len(dropped)
