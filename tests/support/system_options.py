"""What a whole system is made of, and the strategy it starts with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from controlplane.sim.engine import Profile
from controlplane.xds.server.messages import Variant

SERVICE = "chat"
PREFIX = "trimtab/v1"

Tables = Mapping[str, Mapping[str, Any]]


def strategy_document(version: str = "1.0.0", *, law: str = "equal", **changes: Any) -> dict[str, Any]:
    """Write a strategy with the real guards, their times scaled to a test's; `changes` replace parts."""
    document: dict[str, Any] = {
        "schema": 1,
        "version": version,
        "law": law,
        "parameters": {"max_running": 8, "min_tokens": 50} if law == "capacity" else {},
        "signals": {"engine": "vllm", "window_seconds": 4, "stale_after_seconds": 8},
        "guards": {
            "interval_seconds": 0.5,
            "tau_down_seconds": 1,
            "tau_up_seconds": 1,
            "step_down_ratio": 0.5,
            "step_up_ratio": 0.5,
            "hysteresis_ratio": 0.01,
            "hysteresis_endpoint_ratio": 0.1,
            "dead_band_ratio": 0.03,
            "slow_start_seconds": 0,
            "min_samples": 5,
            "hold_seconds": 30,
        },
        "slo": {"ttft_p90_seconds": 1.0},
        "hash_policy": [{"kind": "header", "name": "x-session-id"}],
        "routing": {"domains": ["*"]},
    }
    return document | changes


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemOptions:
    """Which parts there are, and how they are set. Consul and Prometheus run only if they are asked for."""

    documents: Literal["consul", "directory"] = "consul"
    topology: Literal["consul", "file"] = "consul"
    signals: Literal["prometheus", "scrape"] = "prometheus"
    variant: Variant = Variant.DELTA
    speeds: tuple[float, ...] = (0.5, 0.5, 0.5, 0.5)
    """One model server each."""
    versions: tuple[str, ...] = ("v1",)
    """Of the servers; repeated from the start if fewer."""
    profile: Profile = field(default_factory=Profile)
    strategy: Mapping[str, Any] | None = field(default_factory=strategy_document)
    """In force for `SERVICE` before Trimtab starts; `None`: none."""
    settings: Tables = field(default_factory=dict)
    """Settings of Trimtab by table; they win over the system's own."""
    is_envoy_started: bool = True
    is_trimtab_started: bool = True
