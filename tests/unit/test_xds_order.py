"""xDS rules 1 to 5: order and warming, in both variants."""

from __future__ import annotations

import pytest

from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE
from controlplane.xds.server.messages import Variant
from tests.support.xds_machine import ACK_TIMEOUT, Bench, flow
from tests.support.xds_resources import simple

BOTH = pytest.mark.parametrize("variant", list(Variant))

OLD = simple(clusters={"a": 1}, endpoints={"a": 1}, listeners={"l": 1}, routes={"l": "to a"})
MOVED = simple(clusters={"b": 1}, endpoints={"b": 1}, listeners={"l": 1}, routes={"l": "to b"})


def connected(variant: Variant) -> Bench:
    """An Envoy that has taken `OLD` completely."""
    bench = Bench(variant)
    bench.publish(OLD)
    bench.ask(CLUSTER)
    bench.ask(ENDPOINT, "a")
    bench.ask(LISTENER)
    bench.ask(ROUTE, "l")
    assert flow(bench.settle()) == ["CDS a", "EDS a", "LDS l", "RDS l"]
    return bench


def subscribe_to_b(bench: Bench) -> None:
    bench.ask(ENDPOINT, *(["a", "b"] if bench.variant is Variant.SOTW else ["b"]))


@BOTH
def test_rule_1_a_moved_route_comes_after_its_new_cluster_and_before_the_removal(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(MOVED)

    (clusters,) = bench.drain()
    assert flow([clusters]) == ["CDS a b" if variant is Variant.SOTW else "CDS b"]

    bench.answer(clusters)
    assert bench.drain() == [], "the endpoints of the new cluster have not been asked for"

    subscribe_to_b(bench)
    (endpoints,) = bench.drain()
    assert flow([endpoints]) == ["EDS b"]
    assert bench.drain() == [], "routes wait for the ACK of the endpoints"

    bench.answer(endpoints)
    (routes,) = bench.drain()
    assert flow([routes]) == ["RDS l"]
    assert bench.drain() == [], "the removal waits for the ACK of the routes"

    bench.answer(routes)
    (removal,) = bench.drain()
    assert flow([removal]) == ["CDS b" if variant is Variant.SOTW else "CDS -a"]
    assert bench.drain() == [], "endpoints go after the ACK of the clusters' removal"

    bench.answer(removal)
    assert flow(bench.drain()) == ["EDS -a"]


@BOTH
def test_rule_1_routes_wait_for_a_silent_client_only_so_long(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(MOVED)
    bench.drain()

    assert bench.machine.wake_at == bench.now + ACK_TIMEOUT
    bench.now += ACK_TIMEOUT - 0.1
    assert bench.drain() == []
    bench.now += 0.2
    assert flow(bench.drain()) == ["RDS l"]


@BOTH
def test_rule_1_removal_waits_for_a_silent_client_only_so_long(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(MOVED)
    bench.drain()
    bench.now += ACK_TIMEOUT
    assert flow(bench.drain()) == ["RDS l"]

    assert bench.machine.wake_at == bench.now + ACK_TIMEOUT
    bench.now += ACK_TIMEOUT
    assert flow(bench.drain()) == ["CDS b" if variant is Variant.SOTW else "CDS -a"]
    assert bench.machine.wake_at is None


@BOTH
def test_rule_1_refused_routes_keep_the_old_cluster(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(MOVED)
    bench.answer(bench.drain()[0])
    subscribe_to_b(bench)
    bench.answer(bench.drain()[0])
    (routes,) = bench.drain()

    bench.answer(routes, error="bad route")

    bench.now += 100 * ACK_TIMEOUT
    assert bench.drain() == [], "the old route still points to the old cluster"


@BOTH
def test_rule_1_a_removal_alone_needs_one_response(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(simple(endpoints={"a": 1}, listeners={"l": 1}, routes={"l": "to a"}))
    assert flow(bench.drain()) == ["CDS" if variant is Variant.SOTW else "CDS -a"]


@BOTH
def test_rule_1_a_cluster_that_returns_before_its_removal_stays(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(MOVED)
    bench.answer(bench.drain()[0])
    both = simple(
        clusters={"a": 1, "b": 1}, endpoints={"a": 1, "b": 1}, listeners={"l": 1}, routes={"l": "to b"}
    )
    bench.publish(both)
    subscribe_to_b(bench)
    assert not any("-a" in each for each in flow(bench.settle()))
    assert bench.status(CLUSTER).acked_version == both.sets[CLUSTER].version


@BOTH
def test_rule_2_changed_cluster_is_followed_by_its_unchanged_endpoints_once(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(simple(clusters={"a": 2}, endpoints={"a": 1}, listeners={"l": 1}, routes={"l": "to a"}))
    assert flow(bench.drain()) == ["CDS a", "EDS a"]
    for push in bench.sent[-2:]:
        bench.answer(push)
    assert bench.drain() == []


@BOTH
def test_rule_2_rapid_cluster_changes_end_with_endpoints_after_the_last(variant: Variant) -> None:
    bench = connected(variant)
    for content in (2, 3, 4):
        bench.publish(
            simple(clusters={"a": content}, endpoints={"a": 1}, listeners={"l": 1}, routes={"l": "to a"})
        )
        bench.drain()
    assert flow(bench.settle()) == []
    assert flow(bench.sent[-2:]) == ["CDS a", "EDS a"]


@BOTH
def test_rule_2_changed_listener_is_followed_by_its_unchanged_routes(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(simple(clusters={"a": 1}, endpoints={"a": 1}, listeners={"l": 2}, routes={"l": "to a"}))
    assert flow(bench.settle()) == ["LDS l", "RDS l"]


@BOTH
def test_rule_3_an_ack_of_endpoints_from_before_the_change_does_not_count(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(simple(clusters={"a": 1}, endpoints={"a": 2}, listeners={"l": 1}, routes={"l": "to a"}))
    (early,) = bench.drain()
    bench.publish(simple(clusters={"a": 2}, endpoints={"a": 2}, listeners={"l": 1}, routes={"l": "to a"}))
    first_cds = bench.machine.poll(bench.now)
    assert first_cds is not None

    bench.answer(early)

    assert flow(bench.drain()) == ["EDS a"], "the endpoints still follow the changed cluster"


@BOTH
def test_rule_4_types_are_served_in_the_order_the_client_asks(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(OLD)
    for type_url, names, expected in (
        (LISTENER, ["l"], "LDS l"),
        (ROUTE, ["l"], "RDS l"),
        (CLUSTER, ["a"], "CDS a"),
        (ENDPOINT, ["a"], "EDS a"),
    ):
        bench.ask(type_url, *names)
        assert flow(bench.settle()) == [expected]


@BOTH
def test_rule_4_new_endpoints_never_come_before_their_cluster(variant: Variant) -> None:
    bench = connected(variant)
    subscribe_to_b(bench)
    bench.settle()
    bench.publish(
        simple(
            clusters={"a": 1, "b": 1}, endpoints={"a": 1, "b": 1}, listeners={"l": 1}, routes={"l": "to a"}
        )
    )
    names = flow(bench.drain())
    assert names[0].startswith("CDS")
    assert names[1:] == ["EDS b"]


@BOTH
def test_rule_5_one_refused_service_does_not_hold_back_another(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(simple(endpoints={"a": 1, "b": 1, "c": 1}))
    bench.ask(ENDPOINT, "a", "b", "c")
    (all_three,) = bench.drain()
    bench.answer(all_three, error="b is bad")
    assert bench.drain() == [], "nothing is sent again before content changes"

    bench.publish(simple(endpoints={"a": 2, "b": 1, "c": 1}))
    pushes = bench.drain()
    assert flow(pushes) == ["EDS a", "EDS b", "EDS c"], "the doubtful ones come last, one by one"

    bench.answer(pushes[0])
    bench.answer(pushes[1], error="b is bad")
    bench.answer(pushes[2])
    assert bench.status(ENDPOINT).state == "NACKED"

    bench.publish(simple(endpoints={"a": 3, "b": 1, "c": 1}))
    assert flow(bench.settle()) == ["EDS a"], "what was refused alone is not tried again as it is"
    assert bench.status(ENDPOINT).state == "NACKED"

    bench.publish(simple(endpoints={"a": 3, "b": 2, "c": 1}))
    assert flow(bench.settle()) == ["EDS b"]
    assert bench.status(ENDPOINT).state == "SYNCED"
