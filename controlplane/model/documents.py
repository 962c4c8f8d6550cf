"""Documents as a source delivers them: raw, whole, untrusted; and control switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from controlplane.model.topology import ServiceName, Topology

MAX_DOCUMENT_BYTES = 256 * 1024
"""Half of what Consul KV takes at most."""


@dataclass(frozen=True, slots=True)
class RawDocument:
    """One value of the document store. `key` is its full key or file name, for messages.

    `revision` is the store's own (Consul's ModifyIndex; for files a number that changes with the
    content), usable for compare-and-set.
    """

    key: str
    body: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Documents:
    """All documents at one moment, by service name.

    `is_reset` says that the store itself started over (Consul's index went backwards): absence then
    proves nothing.
    """

    strategies: Mapping[ServiceName, RawDocument] = field(default_factory=lambda: MappingProxyType({}))
    canaries: Mapping[ServiceName, RawDocument] = field(default_factory=lambda: MappingProxyType({}))
    freezes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Kill switches: service name (or ``*`` for all) → ``hold`` or ``equal``."""
    is_reset: bool = False


@dataclass(frozen=True, slots=True)
class TopologyOffer:
    """What discovery offers; `core.membership` decides how much of it is taken, and when."""

    topology: Topology
    is_reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedDocument:
    """One line of a service's history, oldest first."""

    service: str
    version: str
    hash: str
    accepted_at_unix_seconds: float
    body: str
