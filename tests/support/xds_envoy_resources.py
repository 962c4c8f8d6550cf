"""Real resources, as small as Envoy takes them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from typing import Any

from controlplane.model.resources import Resource

with warnings.catch_warnings():
    # The generated code uses a form of pydantic validator that is on its way out.
    warnings.simplefilter("ignore", DeprecationWarning)
    from envoy_data_plane.envoy.config.cluster.v3 import Cluster
    from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment
    from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
    from envoy_data_plane.envoy.config.route.v3 import RouteConfiguration
    from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
    from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
        HttpConnectionManager,
        HttpFilter,
    )
    from envoy_data_plane.google.protobuf import Any as AnyMessage

ADS = {"ads": {}, "resourceApiVersion": "V3"}


def cluster(name: str, *, table_size: int = 65_537, timeout: str = "1s") -> Resource:
    """A Maglev cluster with endpoints over ADS. A `table_size` that is not prime is refused by Envoy."""
    message = Cluster.from_dict(
        {
            "name": name,
            "type": "EDS",
            "connectTimeout": timeout,
            "edsClusterConfig": {"edsConfig": ADS},
            "lbPolicy": "MAGLEV",
            "maglevLbConfig": {"tableSize": str(table_size)},
        }
    )
    return _packed(name, message, references=[name])


def endpoints(name: str, *ports: int, weight: int = 1) -> Resource:
    places = [
        {
            "endpoint": {"address": {"socketAddress": {"address": "127.0.0.1", "portValue": port}}},
            "loadBalancingWeight": weight,
        }
        for port in ports
    ]
    message = ClusterLoadAssignment.from_dict({"clusterName": name, "endpoints": [{"lbEndpoints": places}]})
    return _packed(name, message)


def listener(name: str, route: str) -> Resource:
    """A listener on a port that the kernel picks, with its routes over ADS."""
    manager = HttpConnectionManager.from_dict(
        {"statPrefix": name, "rds": {"configSource": ADS, "routeConfigName": route}}
    )
    manager.http_filters = [HttpFilter(name="router", typed_config=AnyMessage.pack(Router()))]
    message = Listener.from_dict(
        {"name": name, "address": {"socketAddress": {"address": "127.0.0.1", "portValue": 0}}}
    )
    message.filter_chains = [
        FilterChain(filters=[Filter(name="http", typed_config=AnyMessage.pack(manager))])
    ]
    return _packed(name, message, references=[route])


def route(name: str, to_cluster: str) -> Resource:
    """Everything goes to one cluster."""
    message = RouteConfiguration.from_dict(
        {
            "name": name,
            "virtualHosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": to_cluster}}],
                }
            ],
        }
    )
    return _packed(name, message)


def _packed(name: str, message: Any, *, references: Iterable[str] = ()) -> Resource:
    body = bytes(AnyMessage.pack(message))
    return Resource(name, hashlib.blake2b(body, digest_size=8).hexdigest(), body, tuple(references))
