"""Clusters: Maglev, limits and health checks. Nothing here changes with a weight."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    Cluster,
    ClusterDiscoveryType,
    ClusterEdsClusterConfig,
    LoadBalancingPolicy,
    LoadBalancingPolicyPolicy,
    TrackClusterStats,
)
from envoy_data_plane.envoy.config.cluster.v3 import OutlierDetection as EnvoyOutlierDetection
from envoy_data_plane.envoy.config.core.v3 import HealthCheck as EnvoyHealthCheck
from envoy_data_plane.envoy.config.core.v3 import (
    HealthCheckHttpHealthCheck,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    TypedExtensionConfig,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.common.v3 import (
    LocalityLbConfigLocalityWeightedLbConfig,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.maglev.v3 import Maglev
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.v3 import CodecClientType

from controlplane.model.plan import ClusterPlan
from controlplane.model.strategy import HealthCheck, Limits, OutlierDetection
from controlplane.xds.build.discovery import over_ads
from controlplane.xds.build.encode import pack
from controlplane.xds.build.localities import is_locality_weighted

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """Everything a cluster's encoding depends on; equal shapes have equal bytes."""

    name: str
    table_size: int
    is_locality_weighted: bool
    limits: Limits
    outlier_detection: OutlierDetection | None
    health_check: HealthCheck | None
    is_http2: bool


def shape_of(plan: ClusterPlan) -> ClusterShape:
    """Take from a plan what matters for the cluster, and leave weights and health aside."""
    strategy = plan.strategy
    return ClusterShape(
        name=plan.name,
        table_size=strategy.maglev.table_size,
        is_locality_weighted=is_locality_weighted(plan),
        limits=strategy.limits,
        outlier_detection=strategy.outlier_detection,
        health_check=strategy.health_check,
        is_http2=strategy.upstream_protocol == "http2",
    )


def cluster(shape: ClusterShape) -> Cluster:
    """Describe one cluster whose endpoints come by EDS under the cluster's own name.

    Left at Envoy's defaults on purpose: `common_lb_config` (the panic threshold is 50 % there;
    `close_connections_on_host_set_change` would drain connections at every weight change, and the
    typed Maglev policy refuses locality settings in it) and slow start (it does not cover Maglev).
    """
    limits = shape.limits
    return Cluster(
        name=shape.name,
        type=ClusterDiscoveryType.EDS,
        eds_cluster_config=ClusterEdsClusterConfig(eds_config=over_ads(), service_name=shape.name),
        connect_timeout=timedelta(seconds=limits.connect_timeout_seconds),
        load_balancing_policy=_maglev(shape),
        circuit_breakers=CircuitBreakers(
            thresholds=[
                CircuitBreakersThresholds(
                    max_connections=limits.max_connections,
                    max_pending_requests=limits.max_pending_requests,
                    max_requests=limits.max_requests,
                    max_retries=limits.max_retries,
                ),
            ],
        ),
        outlier_detection=_outlier_detection(shape.outlier_detection),
        health_checks=_health_checks(shape),
        # Discovery decides who is a member. Envoy would otherwise keep a removed endpoint for as
        # long as it passes the active check.
        ignore_health_on_host_removal=shape.health_check is not None,
        typed_extension_protocol_options={_HTTP_OPTIONS: pack(_http_options(is_http2=shape.is_http2))},
        track_cluster_stats=TrackClusterStats(per_endpoint_stats=True),
    )


def _maglev(shape: ClusterShape) -> LoadBalancingPolicy:
    by_locality = LocalityLbConfigLocalityWeightedLbConfig() if shape.is_locality_weighted else None
    policy = TypedExtensionConfig(
        name="envoy.load_balancing_policies.maglev",
        typed_config=pack(Maglev(table_size=shape.table_size, locality_weighted_lb_config=by_locality)),
    )
    return LoadBalancingPolicy(policies=[LoadBalancingPolicyPolicy(typed_extension_config=policy)])


def _http_options(*, is_http2: bool) -> HttpProtocolOptions:
    explicit = (
        HttpProtocolOptionsExplicitHttpConfig(http2_protocol_options=Http2ProtocolOptions())
        if is_http2
        else HttpProtocolOptionsExplicitHttpConfig(http_protocol_options=Http1ProtocolOptions())
    )
    return HttpProtocolOptions(explicit_http_config=explicit)


def _outlier_detection(spec: OutlierDetection | None) -> EnvoyOutlierDetection | None:
    if spec is None:
        return None
    return EnvoyOutlierDetection(
        consecutive_5xx=spec.consecutive_5xx,
        interval=timedelta(seconds=spec.interval_seconds),
        base_ejection_time=timedelta(seconds=spec.base_ejection_seconds),
        max_ejection_percent=spec.max_ejection_percent,
        # On by default in Envoy, but the document names consecutive failures only, and a slow
        # drift in success rate is what the weights are for.
        enforcing_success_rate=0,
    )


def _health_checks(shape: ClusterShape) -> list[EnvoyHealthCheck]:
    spec = shape.health_check
    if spec is None:
        return []
    interval = timedelta(seconds=spec.interval_seconds)
    return [
        EnvoyHealthCheck(
            timeout=timedelta(seconds=spec.timeout_seconds),
            interval=interval,
            # Envoy checks a cluster without traffic once a minute unless told otherwise.
            no_traffic_interval=interval,
            unhealthy_threshold=spec.unhealthy_threshold,
            healthy_threshold=spec.healthy_threshold,
            http_health_check=HealthCheckHttpHealthCheck(
                path=spec.path,
                codec_client_type=CodecClientType.HTTP2 if shape.is_http2 else CodecClientType.HTTP1,
            ),
        ),
    ]
