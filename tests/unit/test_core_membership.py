"""Which endpoints are believed, and when (faults R11 and R12)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.membership import Membership, admit
from controlplane.model.documents import TopologyOffer
from controlplane.model.topology import Endpoint, ServiceTopology, Topology

HOLD_SECONDS = 30.0


def offer(*ports: int, is_reset: bool = False, service: str = "chat") -> TopologyOffer:
    found = (Endpoint(address="10.0.0.1", port=port) for port in ports)
    endpoints = tuple(sorted(found, key=lambda endpoint: endpoint.id))
    return TopologyOffer(Topology((ServiceTopology(service, endpoints),)), is_reset=is_reset)


def fold(membership: Membership, found: TopologyOffer, now: float) -> Membership:
    return admit(membership, found, now=now, hold_seconds=HOLD_SECONDS)


def ports(membership: Membership) -> list[int]:
    service = membership.topology.get("chat")
    assert service is not None
    return [endpoint.port for endpoint in service.endpoints]


def test_endpoints_are_taken_as_offered() -> None:
    membership = fold(Membership(), offer(1, 2, 3), 0.0)
    membership = fold(membership, offer(2, 3, 4), 1.0)
    assert ports(membership) == [2, 3, 4]
    assert membership.held_since == {}


@pytest.mark.fault("R12")
def test_losing_more_than_half_at_once_is_held_then_believed() -> None:
    membership = fold(Membership(), offer(1, 2, 3, 4, 5), 0.0)

    held = fold(membership, offer(1, 2), 10.0)
    assert ports(held) == [1, 2, 3, 4, 5]
    assert held.held_since == {"chat": 10.0}

    still = fold(held, offer(1, 2), 39.9)
    assert ports(still) == [1, 2, 3, 4, 5]

    believed = fold(still, offer(1, 2), 40.0)
    assert ports(believed) == [1, 2]
    assert believed.held_since == {}


@pytest.mark.fault("R12")
def test_losing_exactly_half_is_believed_at_once() -> None:
    membership = fold(Membership(), offer(1, 2, 3, 4), 0.0)
    assert ports(fold(membership, offer(1, 2), 1.0)) == [1, 2]


@pytest.mark.fault("R12")
def test_endpoints_that_come_back_end_the_hold() -> None:
    membership = fold(Membership(), offer(1, 2, 3, 4, 5), 0.0)
    held = fold(membership, offer(), 10.0)
    back = fold(held, offer(1, 2, 3, 4), 20.0)
    assert ports(back) == [1, 2, 3, 4]
    assert back.held_since == {}


def test_new_endpoints_are_taken_while_a_loss_is_held() -> None:
    membership = fold(Membership(), offer(1, 2, 3, 4, 5), 0.0)
    assert ports(fold(membership, offer(9), 1.0)) == [1, 2, 3, 4, 5, 9]


def test_a_fleet_replaced_by_as_many_others_is_believed_at_once() -> None:
    membership = fold(Membership(), offer(1, 2, 3), 0.0)
    assert ports(fold(membership, offer(7, 8, 9), 1.0)) == [7, 8, 9]


@pytest.mark.fault("R11")
def test_a_store_that_started_over_empty_is_never_believed() -> None:
    membership = fold(Membership(), offer(1, 2), 0.0)
    for now in (1.0, 100.0, 10_000.0):
        membership = fold(membership, offer(is_reset=True), now)
        assert ports(membership) == [1, 2]
    assert ports(fold(membership, offer(1), 10_001.0)) == [1]


@pytest.mark.fault("R11")
def test_the_first_endpoint_back_in_a_store_that_started_over_does_not_stand_for_all() -> None:
    membership = fold(fold(Membership(), offer(1, 2, 3, 4), 0.0), offer(is_reset=True), 1.0)
    membership = fold(membership, offer(is_reset=True), 10_000.0)
    membership = fold(membership, offer(1), 10_001.0)
    assert ports(membership) == [1, 2, 3, 4]
    assert ports(fold(membership, offer(1), 10_100.0)) == [1]


def test_a_service_out_of_the_offer_leaves() -> None:
    membership = fold(Membership(), offer(1, 2), 0.0)
    assert fold(membership, offer(1, service="other"), 1.0).topology.get("chat") is None


@given(st.lists(st.tuples(st.sets(st.integers(11, 22)), st.floats(0.0, 50.0)), min_size=1, max_size=20))
def test_a_service_never_loses_more_than_half_before_the_hold_is_over(
    steps: list[tuple[set[int], float]],
) -> None:
    membership, now = Membership(), 0.0
    for offered, pause in steps:
        now += pause
        before = set(ports(membership)) if membership.topology.services else set()
        since = membership.held_since.get("chat", now)
        membership = fold(membership, offer(*offered), now)
        after = set(ports(membership))
        assert offered <= after
        if 2 * len(after & before) < len(before) and 2 * len(after) < len(before):
            assert now - since >= HOLD_SECONDS
