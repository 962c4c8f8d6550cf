"""Where requests can go: endpoints and the services they belong to."""

from __future__ import annotations

import enum
import ipaddress
import re
from dataclasses import dataclass
from typing import TypeAlias

EndpointId: TypeAlias = str
"""``ip:port`` (``[::1]:80`` for IPv6): what Envoy hashes as a host's key by default."""

ServiceName: TypeAlias = str

SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
"""What a service may be called. No dots: ``<service>.canary`` names the canary's cluster."""


class Health(enum.StrEnum):
    """What discovery says of an endpoint."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One model server.

    `address` is an IP literal, because Envoy's EDS takes no names. `hash_key` is a stable Maglev key
    for hosts whose address changes (empty: `id` is the key). `labels` are further facts from
    discovery, sorted by name. `metrics_url` says where direct scraping reads (empty: ``/metrics`` on
    the endpoint itself).
    """

    address: str
    port: int
    zone: str = ""
    region: str = ""
    version: str = ""
    gpu: str = ""
    health: Health = Health.HEALTHY
    hash_key: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    metrics_url: str = ""

    def __post_init__(self) -> None:
        """Check the address and port.

        Raises:
            ValueError: if `address` is not an IP literal or `port` is out of range.
        """
        ipaddress.ip_address(self.address)
        if not 1 <= self.port <= 65_535:  # noqa: PLR2004 - the range of a TCP port
            msg = f"port {self.port} is not between 1 and 65535"
            raise ValueError(msg)

    @property
    def id(self) -> EndpointId:
        """The endpoint as ``ip:port``."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    @property
    def maglev_key(self) -> str:
        """The key that Envoy's Maglev hashes for this host."""
        return self.hash_key or self.id

    def attribute(self, name: str) -> str:
        """Read `version`, `zone`, `region`, `gpu` or a label by name; empty if absent."""
        if name in {"version", "zone", "region", "gpu"}:
            return str(getattr(self, name))
        return dict(self.labels).get(name, "")


@dataclass(frozen=True, slots=True)
class ServiceTopology:
    """The endpoints of one service, sorted by id, without duplicates."""

    service: ServiceName
    endpoints: tuple[Endpoint, ...]

    def __post_init__(self) -> None:
        """Check order and uniqueness: Envoy drops a repeated address silently and orders equal keys
        by memory address, so two Envoys would disagree.

        Raises:
            ValueError: if ids are unsorted or repeated, or two endpoints share a Maglev key.
        """
        ids = [endpoint.id for endpoint in self.endpoints]
        if ids != sorted(set(ids)):
            msg = f"endpoints of `{self.service}` are not sorted or not unique"
            raise ValueError(msg)
        if len({endpoint.maglev_key for endpoint in self.endpoints}) != len(ids):
            msg = f"endpoints of `{self.service}` share a Maglev key"
            raise ValueError(msg)

    @property
    def ids(self) -> tuple[EndpointId, ...]:
        """Endpoint ids in order."""
        return tuple(endpoint.id for endpoint in self.endpoints)


@dataclass(frozen=True, slots=True)
class Topology:
    """All services, sorted by name.

    `problems` names entries that discovery offered and Trimtab could not take (with why), so that
    a bad entry is visible and never takes its neighbours down.
    """

    services: tuple[ServiceTopology, ...] = ()
    problems: tuple[str, ...] = ()

    def get(self, service: ServiceName) -> ServiceTopology | None:
        """Find a service's endpoints; `None` if discovery does not know the service."""
        return next((found for found in self.services if found.service == service), None)
