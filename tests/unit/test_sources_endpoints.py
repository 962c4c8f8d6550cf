"""From untrusted entries to endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.errors import SourceMalformed
from controlplane.model.topology import Endpoint, Health
from controlplane.sources.consul_catalog import read_instances
from controlplane.sources.endpoints import Found, build_topology, make_endpoint
from controlplane.sources.file_topology import parse_endpoints

ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "::1", "0:0:0:0:0:0:0:1"])
ENDPOINTS = st.builds(
    lambda address, port, facts, health: make_endpoint(
        address=address, port=port, facts=facts, health=health
    ),
    ADDRESSES,
    st.integers(1, 2),
    st.dictionaries(
        st.sampled_from(["zone", "hash_key", "tier", ""]), st.sampled_from(["", "a", "10.0.0.1:1"])
    ),
    st.sampled_from(Health),
)


@settings(max_examples=100)
@given(endpoints=st.lists(ENDPOINTS, max_size=8), data=st.data())
def test_order_of_arrival_changes_nothing_and_everything_is_kept_or_named(
    endpoints: list[Endpoint], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(endpoints))
    topology = build_topology({"chat": Found(endpoints=tuple(endpoints))})
    assert topology == build_topology({"chat": Found(endpoints=tuple(shuffled))})
    assert len(topology.services[0].endpoints) + len(topology.problems) == len(endpoints)


def test_of_two_entries_for_one_address_the_healthy_one_is_kept() -> None:
    pair = [
        make_endpoint(address="10.0.0.1", port=1, facts={}, health=health)
        for health in (Health.DRAINING, Health.HEALTHY)
    ]
    topology = build_topology({"chat": Found(endpoints=tuple(pair))})
    assert topology.services[0].endpoints[0].health is Health.HEALTHY
    assert topology.problems == ("chat: 10.0.0.1:1 is there more than once",)


@pytest.mark.parametrize(
    ("address", "port", "facts"),
    [
        ("host", 1, {}),
        ("", 1, {}),
        ("0.0.0.0", 1, {}),  # noqa: S104 - refused
        ("::", 1, {}),
        ("224.0.0.1", 1, {}),
        ("fe80::1%eth0", 1, {}),
        ("10.0.0.1", 0, {}),
        ("10.0.0.1", 65_536, {}),
        ("10.0.0.1", 1, {"zone": "x" * 2000}),
    ],
)
def test_what_cannot_be_connected_to_is_refused(address: str, port: int, facts: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        make_endpoint(address=address, port=port, facts=facts)


def instance(**changes: Any) -> dict[str, Any]:
    service = {"ID": "i", "Address": "10.0.0.1", "Port": 1, "Tags": [], "Meta": {}} | changes
    return {"Node": {"Address": "10.0.0.9"}, "Service": service, "Checks": []}


def test_consul_may_leave_out_what_it_may() -> None:
    found = read_instances((instance(Address="", Tags=None, Meta=None), instance(Port=0)))
    assert [endpoint.id for endpoint in found.endpoints] == ["10.0.0.9:1"]
    assert "port 0" in found.problems[0]


@pytest.mark.parametrize("broken", [{"Node": {}, "Service": {}}, instance(Tags=[1]), instance(Meta=[1])])
def test_what_is_not_consuls_format_is_malformed(broken: dict[str, Any]) -> None:
    with pytest.raises(SourceMalformed):
        read_instances((broken,))


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["services", "endpoints", "address", "port", "labels", "drain", "zone", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=100)
@given(services=st.dictionaries(st.text(max_size=3), JSON | st.lists(JSON, max_size=4), max_size=3))
def test_any_file_is_taken_or_refused_with_a_reason(services: dict[str, Any]) -> None:
    try:
        found = parse_endpoints(json.dumps({"services": services}).encode(), is_json=True)
    except ValueError:
        return
    assert set(found) == set(services)
    build_topology(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "documents"),
        (b"[]", "the file is not a mapping"),
        (b"service: {}", "unknown field `service`"),
        (b"services: {a: 1}", "service `a` is not a mapping"),
        (b"services: {a: {}}", "service `a` has no list of endpoints"),
        (b"services: {a: {endpoints: [], b: 1}}", "unknown field `b`"),
    ],
)
def test_a_file_that_is_bad_as_a_whole_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_endpoints(text, is_json=False)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("10.0.0.1", "is not `address:port`"),
        ("::1:80", "is not `address:port`"),
        ("7", "the entry is not a mapping"),
        ("{address: 10.0.0.1}", "`port` is not a whole number"),
        ("{address: 10.0.0.1, port: true}", "`port` is not a whole number"),
        ("{port: 1}", "`address` is missing"),
        ("{address: 10.0.0.1, port: 1, drain: 1}", "`drain` is not true or false"),
        ("{address: 10.0.0.1, port: 1, version: 1.10}", "`version` is not a text"),
        ("{address: 10.0.0.1, port: 1, labels: {zone: a}}", "`zone` is a field of its own"),
        ("{address: 10.0.0.1, port: 1, wieght: 1}", "unknown field `wieght`"),
    ],
)
def test_a_bad_entry_is_named_and_its_neighbour_stays(entry: str, reason: str) -> None:
    text = f"services:\n  chat:\n    endpoints:\n    - {entry}\n    - 10.0.0.2:80\n".encode()
    found = parse_endpoints(text, is_json=False)["chat"]
    assert [endpoint.id for endpoint in found.endpoints] == ["10.0.0.2:80"]
    assert reason in found.problems[0]


def test_every_field_has_its_place() -> None:
    text = b"""services: {chat: {endpoints: [{address: "0:0::1", port: 80, zone: a, region: r, version: 2,
      gpu: h100, hash_key: k, drain: true, labels: {tier: gold, spot: true}, metrics_url: "http://x/m"}]}}"""
    assert parse_endpoints(text, is_json=False)["chat"].endpoints == (
        Endpoint(
            address="::1",
            port=80,
            zone="a",
            region="r",
            version="2",
            gpu="h100",
            hash_key="k",
            health=Health.DRAINING,
            labels=(("spot", "true"), ("tier", "gold")),
            metrics_url="http://x/m",
        ),
    )
