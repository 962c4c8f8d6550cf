"""Tiny resources: opaque ones for the protocol, real ones for Envoy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, Resource, ResourceSet, Snapshot


def digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()


def resource(name: str, content: object = 0, *, references: Iterable[str] = ()) -> Resource:
    return Resource(name, digest(name, content), f"{name}={content}".encode(), tuple(sorted(references)))


def resource_set(type_url: str, resources: Iterable[Resource]) -> ResourceSet:
    by_name = {each.name: each for each in sorted(resources, key=lambda each: each.name)}
    version = digest(type_url, [(each.name, each.version) for each in by_name.values()])
    return ResourceSet(type_url, version, by_name)


def snapshot(sets: Mapping[str, Iterable[Resource]]) -> Snapshot:
    built = {type_url: resource_set(type_url, resources) for type_url, resources in sets.items()}
    return Snapshot(digest([each.version for each in built.values()]), built)


def simple(
    *,
    clusters: Mapping[str, object] | None = None,
    endpoints: Mapping[str, object] | None = None,
    listeners: Mapping[str, object] | None = None,
    routes: Mapping[str, object] | None = None,
) -> Snapshot:
    """Give a snapshot of opaque resources, name → content. Cluster `c` refers to endpoints `c`, listener
    `l` to route `l`."""
    return snapshot(
        {
            CLUSTER: [resource(name, each, references=[name]) for name, each in (clusters or {}).items()],
            ENDPOINT: [resource(name, each) for name, each in (endpoints or {}).items()],
            LISTENER: [resource(name, each, references=[name]) for name, each in (listeners or {}).items()],
            ROUTE: [resource(name, each) for name, each in (routes or {}).items()],
        }
    )
