"""What the demo's processes read: strategy, settings, and Envoy's bootstrap."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CAPACITY = {"max_running": 8, "min_tokens": 50, "min_utilization": 0.3, "latency": "none"}
"""Eight requests fill a simulated server, so each is a large step of its utilisation: taking none of
them for less than 0.3 keeps one request more or less from moving weights.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where everything listens."""

    xds: int
    trimtab_admin: int
    envoy: int
    envoy_admin: int
    stable: tuple[int, ...]
    canary: tuple[int, ...]

    @property
    def servers(self) -> tuple[int, ...]:
        """All model servers, stable first."""
        return self.stable + self.canary


def strategy(version: str, *, law: str, idle_timeout_seconds: float = 300.0) -> dict[str, Any]:
    """Write the demo's strategy document: the real guards, with time scaled to a minute's play."""
    return {
        "schema": 1,
        "version": version,
        "law": law,
        # Answers in the demo are short and the window too: what counts as enough is scaled down.
        "parameters": _CAPACITY if law == "capacity" else {},
        "signals": {"engine": "vllm", "window_seconds": 8, "stale_after_seconds": 10},
        "guards": {
            "interval_seconds": 2,
            "tau_down_seconds": 4,
            "tau_up_seconds": 7,
            "step_down_ratio": 0.5,
            "step_up_ratio": 0.7,
            "hysteresis_ratio": 0.04,
            "hysteresis_endpoint_ratio": 0.5,
            "dead_band_ratio": 0.4,
            "slow_start_seconds": 0,
            "min_samples": 5,
            "hold_seconds": 30,
        },
        "slo": {"ttft_p90_seconds": 1.0},
        "hash_policy": [{"kind": "header", "name": "x-session-id"}],
        "routing": {"domains": ["*"], "idle_timeout_seconds": idle_timeout_seconds},
    }


def settings(folder: Path, ports: Ports) -> str:
    """Write Trimtab's settings: embedded sources, everything in the demo's folder."""
    return f"""\
[sources]
directory = "{folder}/documents"
endpoints_file = "{folder}/endpoints.yaml"

[xds]
port = {ports.xds}

[admin]
port = {ports.trimtab_admin}

[listener]
address = "127.0.0.1"
port = {ports.envoy}

[scrape]
envoy_urls = ["http://127.0.0.1:{ports.envoy_admin}/stats/prometheus"]

[store]
directory = "{folder}/state"

[loop]
interval_seconds = 1
"""


def bootstrap(ports: Ports) -> dict[str, Any]:
    """Envoy's bootstrap: everything but the way to Trimtab comes from Trimtab."""
    ads = {"ads": {}, "resource_api_version": "V3"}
    http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {
        "node": {"id": "demo-envoy", "cluster": "demo"},
        "admin": {"address": _address(ports.envoy_admin)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "trimtab"}}],
            },
            "cds_config": ads,
            "lds_config": ads,
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "trimtab",
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": {
                        http2: {
                            "@type": f"type.googleapis.com/{http2}",
                            "explicit_http_config": {"http2_protocol_options": {}},
                        },
                    },
                    "load_assignment": {
                        "cluster_name": "trimtab",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(ports.xds)}}]}],
                    },
                },
            ],
        },
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
