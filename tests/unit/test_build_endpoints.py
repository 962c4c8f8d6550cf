"""Load assignments: spliced bytes are the library's bytes, and order does not matter."""

from __future__ import annotations

import ipaddress
import random

import pytest
from envoy_data_plane.envoy.config.core.v3 import HealthStatus
from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.errors import InvalidPlan
from controlplane.model.plan import ClusterPlan, WeightedEndpoint
from controlplane.model.resources import ENDPOINT
from controlplane.model.strategy import Locality, Maglev, Strategy
from controlplane.model.topology import Endpoint, Health
from controlplane.xds.build.encode import varint, wrap
from controlplane.xds.build.endpoints import AssignmentEncoder
from tests.support.build_plans import STRATEGY, cluster_plan, endpoint, library_assignment, weighted

ZONES = ("", "a", "b", "c")
ADDRESSES = st.one_of(
    st.integers(0x0A000001, 0x0AFFFFFF).map(lambda number: str(ipaddress.IPv4Address(number))),
    st.integers(2**127, 2**128 - 1).map(lambda number: str(ipaddress.IPv6Address(number))),
    st.sampled_from(("::1", "127.0.0.1")),
)
ENDPOINTS = st.builds(
    Endpoint,
    address=ADDRESSES,
    port=st.integers(1, 65_535),
    zone=st.sampled_from(ZONES),
    region=st.sampled_from(("", "north", "south")),
    health=st.sampled_from(Health),
    hash_key=st.one_of(st.just(""), st.text(min_size=1, max_size=200)),
)
WEIGHTS = st.one_of(st.integers(1, 2_000_000), st.sampled_from((1, 127, 128, 16_383, 16_384, 2**28)))
LOCALITIES = st.one_of(
    st.just(Locality()),
    st.just(Locality(priorities={"a": 1, "b": 1})),
    st.just(Locality(weights={"a": 3, "b": 1})),
    st.just(Locality(weights={"": 1, "a": 300, "b": 2, "c": 70_000}, priorities={"c": 1})),
)


@st.composite
def plans(draw: st.DrawFn) -> ClusterPlan:
    """Draw a plan whose priorities are 0, or 0 and 1."""
    drawn = draw(
        st.lists(ENDPOINTS, max_size=12, unique_by=(lambda each: each.id, lambda each: each.maglev_key)),
    )
    anchor = Endpoint(address="10.9.9.9", port=65_535)
    members = [each for each in drawn if each.maglev_key != anchor.id] + [anchor]
    weights = draw(st.lists(WEIGHTS, min_size=len(members), max_size=len(members)))
    strategy = Strategy(schema=1, version="1.0.0", locality=draw(LOCALITIES))
    return cluster_plan(endpoints=weighted(members, *weights), strategy=strategy)


def decoded(plan: ClusterPlan) -> ClusterLoadAssignment:
    return ClusterLoadAssignment.parse(AssignmentEncoder().encode(plan))


@settings(max_examples=80, deadline=None)
@given(first=plans(), second=plans())
def test_spliced_bytes_equal_the_library_s_own_also_after_another_plan(
    first: ClusterPlan,
    second: ClusterPlan,
) -> None:
    encoder = AssignmentEncoder()
    for plan in (first, second, first):
        assert wrap(ENDPOINT, encoder.encode(plan)) == library_assignment(plan)


@settings(max_examples=40, deadline=None)
@given(plan=plans(), seed=st.integers(0, 2**32))
def test_the_order_of_endpoints_does_not_change_a_byte(plan: ClusterPlan, seed: int) -> None:
    shuffled = list(plan.endpoints)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - a permutation, not a secret
    again = cluster_plan(endpoints=tuple(shuffled), strategy=plan.strategy)
    assert AssignmentEncoder().encode(again) == AssignmentEncoder().encode(plan)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_varints_follow_the_wire_format(number: int, expected: bytes) -> None:
    assert varint(number) == expected


def test_a_weight_change_encodes_no_endpoint_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = AssignmentEncoder()
    members = [endpoint(index) for index in range(5)]
    encoder.encode(cluster_plan(endpoints=weighted(members)))
    monkeypatch.setattr("controlplane.xds.build.endpoints.lb_endpoint", None)
    changed = cluster_plan(endpoints=weighted(members, 1, 2, 3, 4, 5))
    assert wrap(ENDPOINT, encoder.encode(changed)) == library_assignment(changed)


def test_no_endpoints_make_a_valid_empty_assignment() -> None:
    assignment = decoded(cluster_plan())
    assert (assignment.cluster_name, assignment.endpoints) == ("llama", [])


def test_health_and_hash_key_reach_envoy_and_changes_of_them_are_seen() -> None:
    encoder = AssignmentEncoder()
    for health, status in (
        (Health.HEALTHY, HealthStatus.HEALTHY),
        (Health.DRAINING, HealthStatus.DRAINING),
        (Health.UNHEALTHY, HealthStatus.UNHEALTHY),
    ):
        for key in ("", "pod-7", "pod-8"):
            member = Endpoint(address="::1", port=80, health=health, hash_key=key)
            plan = cluster_plan(endpoints=weighted([member], 7))
            (locality,) = ClusterLoadAssignment.parse(encoder.encode(plan)).endpoints
            (found,) = locality.lb_endpoints
            assert found.health_status == status
            if key:
                assert found.metadata is not None
                assert found.metadata.filter_metadata["envoy.lb"].fields["hash_key"].string_value == key
            else:
                assert found.metadata is None


def test_priorities_are_closed_up_and_weights_stay_with_their_zone() -> None:
    locality = Locality(weights={"a": 5, "b": 7}, priorities={"a": 3, "b": 9})
    strategy = Strategy(schema=1, version="1.0.0", locality=locality)
    members = [endpoint(0, zone="b"), endpoint(1, zone="a")]
    found = decoded(cluster_plan(endpoints=weighted(members), strategy=strategy)).endpoints
    seen = [
        (each.priority, each.locality.zone if each.locality else "", each.load_balancing_weight)
        for each in found
    ]
    assert seen == [(0, "a", 5), (1, "b", 7)]


def test_a_weighted_zone_stays_one_group_across_regions() -> None:
    strategy = Strategy(schema=1, version="1.0.0", locality=Locality(weights={"a": 5}))
    members = [endpoint(0, zone="a", region="north"), endpoint(1, zone="a", region="south")]
    (only,) = decoded(cluster_plan(endpoints=weighted(members), strategy=strategy)).endpoints
    assert len(only.lb_endpoints) == 2
    assert only.load_balancing_weight == 5


def with_locality(**fields: dict[str, int]) -> Strategy:
    return Strategy(schema=1, version="1.0.0", locality=Locality(**fields))


TWO = [endpoint(0, zone="a"), endpoint(1, zone="b")]
REFUSED = {
    "a repeated endpoint": (weighted([TWO[0], TWO[0]]), STRATEGY, "more than once"),
    "a repeated key": (
        weighted(
            [
                Endpoint(address="10.0.0.1", port=80),
                Endpoint(address="10.0.0.2", port=80, hash_key="10.0.0.1:80"),
            ]
        ),
        STRATEGY,
        "Maglev key `10.0.0.1:80` more than once",
    ),
    "a weight of zero": (weighted(TWO, 1, 0), STRATEGY, "below 1"),
    "too large a sum": (weighted(TWO, 2**32 - 1, 1), STRATEGY, "sum to 4294967296"),
    "too large a zone sum": (
        weighted(TWO),
        with_locality(weights={"a": 2**32 - 1, "b": 1}),
        "zone weights",
    ),
    "more endpoints than slots": (
        weighted([endpoint(index) for index in range(3)]),
        Strategy(schema=1, version="1.0.0", maglev=Maglev(table_size=2)),
        "less than 3 endpoints",
    ),
    "too large a table": (
        weighted(TWO),
        Strategy(schema=1, version="1.0.0", maglev=Maglev(table_size=5_000_077)),
        "table_size 5000077",
    ),
    "too high a priority": (weighted(TWO), with_locality(priorities={"a": 128}), "priority 128"),
    "a spelled-out address": (
        weighted([Endpoint(address="0:0:0:0:0:0:0:1", port=80)]),
        STRATEGY,
        "write `::1`",
    ),
    "a scoped address": (weighted([Endpoint(address="fe80::1%eth0", port=80)]), STRATEGY, "no scope"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_envoy_would_refuse_or_misread_is_refused_with_the_service_s_name(case: str) -> None:
    endpoints, strategy, reason = REFUSED[case]
    with pytest.raises(InvalidPlan, match=reason) as caught:
        AssignmentEncoder().encode(cluster_plan(endpoints=endpoints, strategy=strategy))
    assert caught.value.service == "llama"


def test_each_priority_may_use_the_whole_range_of_weights() -> None:
    full: tuple[WeightedEndpoint, ...] = weighted(TWO, 2**32 - 1, 2**32 - 1)
    strategy = with_locality(priorities={"b": 1}, weights={"a": 2**32 - 1, "b": 2**32 - 1})
    plan = cluster_plan(endpoints=full, strategy=strategy)
    assert wrap(ENDPOINT, AssignmentEncoder().encode(plan)) == library_assignment(plan)
