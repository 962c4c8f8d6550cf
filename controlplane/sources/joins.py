"""Joining series to endpoints by the value of one label."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from controlplane.model.signals import SignalRequest
from controlplane.model.topology import EndpointId
from controlplane.sources.measures import Group


@dataclass(frozen=True, slots=True)
class Join:
    """Endpoints by the value of the join label.

    With `by_host`, a value that is no key itself is tried without its port.
    """

    endpoints: Mapping[str, tuple[EndpointId, ...]]
    by_host: bool = False

    def match(self, value: str) -> tuple[EndpointId, ...]:
        """Find the endpoints a series describes; none if the value names no known endpoint."""
        found = self.endpoints.get(value, ())
        if found or not self.by_host:
            return found
        return self.endpoints.get(host_of(value), ())


def join_for(group: Group | None, request: SignalRequest) -> Join:
    """Choose how the series of a group (`None`: a custom query) join to the request's endpoints.

    Envoy names upstreams as ``ip:port``, which is the endpoint's id. A DCGM exporter has an
    ``instance`` of its own: unless the strategy joins by another label, its series count for an
    endpoint that is alone on that address, and for none where several engines share the host (which
    of its GPUs is whose cannot be told). Everything else joins as the strategy says.
    """
    spec = request.spec
    if group == "envoy":
        return _by_id(request)
    if group == "dcgm" and spec.join == "id" and spec.join_label == "instance":
        hosts = _grouped({endpoint: host_of(endpoint) for endpoint in request.endpoints})
        return Join({host: ids for host, ids in hosts.items() if len(ids) == 1}, by_host=True)
    match spec.join:
        case "id":
            return _by_id(request)
        case "address":
            return _by_address(request)
        case "label":
            return Join(_grouped(dict(zip(request.endpoints, request.join_values, strict=False))))


def host_of(value: str) -> str:
    """Strip the port of ``host:port`` or ``[ipv6]:port``; a bare IPv6 address stays whole."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        host, colon, port = value.rpartition(":")
        return host.strip("[]") if colon and port.isdigit() else value
    return value


def _by_id(request: SignalRequest) -> Join:
    return Join({endpoint: (endpoint,) for endpoint in request.endpoints})


def _by_address(request: SignalRequest) -> Join:
    """One series may describe a whole host: then it counts for every endpoint there.

    A value with a port that names one endpoint exactly means that endpoint only.
    """
    hosts = _grouped({endpoint: host_of(endpoint) for endpoint in request.endpoints})
    exact = {endpoint: (endpoint,) for endpoint in request.endpoints}
    return Join(MappingProxyType(exact | hosts), by_host=True)


def _grouped(keys: Mapping[EndpointId, str]) -> dict[str, tuple[EndpointId, ...]]:
    grouped: dict[str, list[EndpointId]] = defaultdict(list)
    for endpoint, key in keys.items():
        if key:
            grouped[key].append(endpoint)
    return {key: tuple(endpoints) for key, endpoints in grouped.items()}
