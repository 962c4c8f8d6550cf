"""Versions are hashes of content: a restart or a second replica changes nothing for Envoy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from controlplane.model.resources import Resource, ResourceSet

_DIGEST_BYTES = 16
"""128 bits: no accidental collision, and still short in a log line."""


def content_version(body: bytes) -> str:
    """Hash one encoded resource."""
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()


def set_version(resources: Iterable[Resource]) -> str:
    """Hash the names and versions of one type's resources, in their order (sorted by name)."""
    return _joined((resource.name, resource.version) for resource in resources)


def snapshot_version(sets: Iterable[ResourceSet]) -> str:
    """Hash the types and versions of all sets, in their order."""
    return _joined((each.type_url, each.version) for each in sets)


def _joined(pairs: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name, version in pairs:
        # The length keeps apart what concatenation would mix up.
        digest.update(f"{len(name)}:{name}{version};".encode())
    return digest.hexdigest()
