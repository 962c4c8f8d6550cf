"""Where Envoy finds what a resource refers to: the same aggregated stream."""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.core.v3 import AggregatedConfigSource, ApiVersion, ConfigSource

_WAIT_FOREVER = timedelta(0)


def over_ads() -> ConfigSource:
    """Point at ADS, without a deadline for the first answer.

    With Envoy's default of 15 s, a cluster or listener that is *updated* while the control plane is
    away goes live without endpoints or routes, and replaces the working one. Waiting keeps what
    works. It cannot hang on a control plane that is there, because every subscription is answered.
    """
    return ConfigSource(
        ads=AggregatedConfigSource(),
        initial_fetch_timeout=_WAIT_FOREVER,
        resource_api_version=ApiVersion.V3,
    )
