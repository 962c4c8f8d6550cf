"""xDS rules 1, 2 and 6 where a refusal meets newer content, in both variants."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controlplane.model.fleet import SyncState
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, Snapshot
from controlplane.xds.server.messages import Variant
from tests.support.xds_machine import Bench, flow
from tests.support.xds_resources import simple

BOTH = pytest.mark.parametrize("variant", list(Variant))


def routed(clusters: Mapping[str, object], *, to: str) -> Snapshot:
    """A world with endpoints that never change, and one route."""
    endpoints = dict.fromkeys(clusters, 1)
    return simple(clusters=clusters, endpoints=endpoints, listeners={"l": 1}, routes={"l": f"to {to}"})


OLD = routed({"a": 1}, to="a")
MOVED = routed({"b": 1}, to="b")


def connected(variant: Variant) -> Bench:
    """An Envoy that has taken `OLD` completely."""
    bench = Bench(variant)
    bench.publish(OLD)
    bench.ask(CLUSTER)
    bench.ask(ENDPOINT, "a")
    bench.ask(LISTENER)
    bench.ask(ROUTE, "l")
    bench.settle()
    return bench


@BOTH
def test_rule_1_a_cluster_in_use_keeps_its_endpoints_when_they_must_be_answered(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(routed({"a": 2}, to="a"))
    push = bench.machine.poll(bench.now)
    assert push is not None
    assert flow([push]) == ["CDS a"]

    bench.publish(MOVED)

    kept = ["CDS a b", "EDS a"] if variant is Variant.SOTW else ["CDS b", "EDS a"]
    assert flow(bench.drain()) == kept, "a warms up, and the old route still points there"


def test_rule_1_sotw_a_refused_cluster_in_use_keeps_its_endpoints() -> None:
    bench = connected(Variant.SOTW)
    bench.publish(simple(clusters={"a": 1, "d": "bad"}, endpoints={"a": 1, "d": 1}))
    (clusters,) = bench.drain()
    bench.answer(clusters, error="bad d")

    bench.publish(simple(clusters={"b": "bad"}, endpoints={"b": 1}))

    assert flow(bench.drain()) == ["CDS a b", "EDS a"]


def test_rule_1_delta_what_the_client_alone_knows_is_not_taken_away_early() -> None:
    bench = Bench(Variant.DELTA)
    bench.publish(MOVED)
    bench.ask(CLUSTER, versions={"a": OLD.sets[CLUSTER].resources["a"].version})
    bench.ask(ENDPOINT, "a", versions={"a": OLD.sets[ENDPOINT].resources["a"].version})
    bench.ask(LISTENER, versions={"l": OLD.sets[LISTENER].resources["l"].version})
    bench.ask(ROUTE, "l", versions={"l": OLD.sets[ROUTE].resources["l"].version})

    bench.ask(ENDPOINT, "a")

    assert flow(bench.drain()) == ["CDS b"], "the old route still points to a"


@BOTH
def test_rule_1_routes_wait_for_endpoints_of_a_cluster_sent_again(
    variant: Variant,
) -> None:
    bench = connected(variant)
    bench.publish(routed({"a": 1, "b": 1, "d": "bad"}, to="a"))
    refused = bench.drain()[0]
    bench.publish(routed({"a": 1, "b": 1}, to="b"))
    bench.drain()

    bench.answer(refused, error="bad d")
    sent = bench.sent[-1:] + bench.drain()
    for push in sent:
        bench.answer(push)

    assert bench.drain() == [], "the client has yet to ask for the endpoints of b"
    bench.ask(ENDPOINT, *(["a", "b"] if variant is Variant.SOTW else ["b"]))
    assert flow(bench.settle())[:2] == ["EDS b", "RDS l"]


@BOTH
def test_rule_2_a_late_refusal_makes_news_of_what_was_sent_again_since(variant: Variant) -> None:
    bench = connected(variant)
    bench.publish(routed({"a": 2, "d": "bad"}, to="a"))
    refused, endpoints = bench.drain()
    assert flow([refused, endpoints]) == ["CDS a d", "EDS a"]
    bench.publish(routed({"a": 2}, to="a"))
    (second,) = bench.drain()

    bench.answer(refused, error="bad d")

    # SotW: the second response changes the cluster after all. Delta: it did not even carry it.
    expected = ["EDS a"] if variant is Variant.SOTW else ["CDS a", "EDS a"]
    last = bench.drain()
    assert flow(last) == expected
    for push in (endpoints, second, *last):
        bench.answer(push)
    assert bench.drain() == []
    assert bench.status(CLUSTER).state is SyncState.SYNCED


def test_rule_6_delta_a_removal_refused_in_company_is_told_again_once_content_changes() -> None:
    bench = Bench(Variant.DELTA)
    bench.publish(simple(clusters={"a": 1, "b": 1}))
    bench.ask(CLUSTER)
    bench.settle()
    bench.publish(simple(clusters={"a": "bad"}))
    (refused,) = bench.drain()
    assert flow([refused]) == ["CDS a -b"]
    bench.answer(refused, error="bad a")
    assert bench.drain() == [], "nothing is sent before content changes"

    bench.publish(simple(clusters={"a": 2}))

    assert flow(bench.settle()) == ["CDS a", "CDS -b"]


def test_rule_6_delta_a_removal_refused_late_is_told_again_at_once_and_only_once() -> None:
    bench = Bench(Variant.DELTA)
    bench.publish(simple(clusters={"a": 1, "b": 1}))
    bench.ask(CLUSTER)
    bench.settle()
    bench.publish(simple(clusters={"a": "bad"}))
    (refused,) = bench.drain()
    bench.publish(simple(clusters={"a": 2}))
    (good,) = bench.drain()

    bench.answer(refused, error="bad a")
    (removal,) = bench.drain()
    assert flow([good, removal]) == ["CDS a", "CDS -b"]

    bench.answer(good)
    bench.answer(removal, error="no")
    assert bench.drain() == []


def test_rule_6_delta_what_was_refused_alone_gets_no_try_from_an_earlier_refusal_in_company() -> None:
    bench = Bench(Variant.DELTA)
    bench.ask(CLUSTER)
    for clusters in ({"a": 1, "c": 1, "d": "bad"}, {"a": 1, "d": 1}, {"a": 1, "d": "bad"}):
        bench.publish(simple(clusters=clusters))
        bench.drain()
    assert flow(bench.sent) == ["CDS a c d", "CDS d -c", "CDS d"]
    in_company, good, alone = bench.sent

    bench.answer(in_company, error="bad d")
    bench.answer(good)
    bench.answer(alone, error="bad d")

    assert flow(bench.settle()) == ["CDS a"]


@BOTH
def test_rule_6_what_was_refused_may_come_again_once_something_else_was_current(variant: Variant) -> None:
    bench = connected(variant)
    bad = routed({"a": "bad"}, to="a")
    bench.publish(bad)
    refused = bench.drain()[0]
    bench.publish(OLD)
    bench.drain()
    bench.answer(refused, error="bad a")

    bench.publish(bad)

    again = bench.drain()
    assert flow(again) == ["CDS a", "EDS a"]
    bench.answer(again[0], error="bad a")
    assert bench.drain() == []
