"""Encoded xDS resources: opaque bytes with names and versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTE = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
RUNTIME = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
EXTENSION = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"

TYPE_ORDER = (CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, RUNTIME, EXTENSION)
"""Make before break: clusters and endpoints come before the listeners and routes that use them."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource. `body` is a serialised ``google.protobuf.Any``; `version` hashes its content.

    `references` names the resources of the next type that this one needs (a cluster's EDS name, a
    listener's route configurations), sorted.
    """

    name: str
    version: str
    body: bytes
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceSet:
    """All resources of one type, by name (sorted). `version` hashes all names and versions."""

    type_url: str
    version: str
    resources: Mapping[str, Resource]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a group of Envoys should have, at one moment."""

    version: str
    """Hash over all sets' versions: equal content, equal version."""
    sets: Mapping[str, ResourceSet] = field(default_factory=lambda: MappingProxyType({}))

    def get(self, type_url: str) -> ResourceSet | None:
        """Resources of a type; `None` if the snapshot does not carry the type."""
        return self.sets.get(type_url)
