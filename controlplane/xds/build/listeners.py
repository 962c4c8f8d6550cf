"""The listener: one HTTP port whose routes come over the same stream."""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.core.v3 import Address, SocketAddress
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerCodecType,
    HttpFilter,
    Rds,
)

from controlplane.model.plan import ListenerPlan
from controlplane.xds.build.discovery import over_ads
from controlplane.xds.build.encode import pack

_STREAM_IDLE = timedelta(minutes=5)
"""Longest silence until a route is chosen; from then on the route's own idle timeout counts."""


def listener(plan: ListenerPlan) -> Listener:
    """Describe the listener. Access logs are off: Envoy writes none unless told to."""
    return Listener(
        name=plan.name,
        address=Address(
            socket_address=SocketAddress(
                address=plan.address,
                port_value=plan.port,
                # `::` then also takes IPv4, as people expect of "any address".
                ipv4_compat=plan.address == "::",
            ),
        ),
        filter_chains=[
            FilterChain(
                filters=[
                    Filter(
                        name="envoy.filters.network.http_connection_manager",
                        typed_config=pack(_connection_manager(plan)),
                    ),
                ],
            ),
        ],
    )


def _connection_manager(plan: ListenerPlan) -> HttpConnectionManager:
    return HttpConnectionManager(
        codec_type=HttpConnectionManagerCodecType.AUTO,
        stat_prefix=plan.name,
        rds=Rds(config_source=over_ads(), route_config_name=plan.route_config),
        http_filters=[HttpFilter(name="envoy.filters.http.router", typed_config=pack(Router()))],
        stream_idle_timeout=_STREAM_IDLE,
        # The peer's own address is the client: `x-forwarded-for` must neither choose the host (hash
        # policy `source_ip`) nor make an outsider's `x-envoy-*` headers trusted.
        use_remote_address=True,
    )
