"""From a series' label to endpoints."""

from __future__ import annotations

import pytest

from controlplane.model.strategy import SignalsSpec
from controlplane.sources.joins import host_of, join_for
from tests.support.signal_requests import signal_request

ENDPOINTS = ("10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "[::1]:8000")


def test_by_id_the_label_is_the_endpoint() -> None:
    join = join_for("engine", signal_request(ENDPOINTS))
    assert join.match("10.0.0.1:8001") == ("10.0.0.1:8001",)
    assert join.match("[::1]:8000") == ("[::1]:8000",)
    assert join.match("10.0.0.1") == ()
    assert join.match("") == ()


def test_by_address_a_host_means_all_its_endpoints_and_an_exact_id_only_itself() -> None:
    join = join_for(None, signal_request(ENDPOINTS, SignalsSpec(join="address", join_label="node")))
    assert join.match("10.0.0.1") == ("10.0.0.1:8000", "10.0.0.1:8001")
    assert join.match("10.0.0.1:9100") == ("10.0.0.1:8000", "10.0.0.1:8001")
    assert join.match("10.0.0.1:8001") == ("10.0.0.1:8001",)
    assert join.match("::1") == ("[::1]:8000",)
    assert join.match("10.0.0.9") == ()


def test_by_label_the_topologys_label_decides_and_an_unknown_one_matches_nothing() -> None:
    spec = SignalsSpec(join="label", join_label="pod", join_endpoint_label="pod")
    join = join_for("engine", signal_request(ENDPOINTS, spec, join_values=("a", "b", "", "")))
    assert join.match("b") == ("10.0.0.1:8001",)
    assert join.match("") == ()
    assert join_for("engine", signal_request(ENDPOINTS, spec)).match("a") == ()


def test_envoy_always_joins_by_address_and_port() -> None:
    spec = SignalsSpec(join="label", join_label="pod", join_endpoint_label="pod")
    join = join_for("envoy", signal_request(ENDPOINTS, spec, join_values=("a", "b", "c", "d")))
    assert join.match("10.0.0.2:8000") == ("10.0.0.2:8000",)


def test_gpus_join_only_where_one_engine_has_the_host_to_itself() -> None:
    join = join_for("dcgm", signal_request(ENDPOINTS))
    assert join.match("10.0.0.2:9400") == ("10.0.0.2:8000",)
    assert join.match("10.0.0.1:9400") == ()


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("1.2.3.4:5", "1.2.3.4"),
        ("1.2.3.4", "1.2.3.4"),
        ("[::1]:5", "::1"),
        ("::1", "::1"),
        ("gpu-7", "gpu-7"),
        ("", ""),
    ],
)
def test_hosts(value: str, host: str) -> None:
    assert host_of(value) == host
