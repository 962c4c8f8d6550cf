"""xDS rules 6 to 16 on the pure machines."""

from __future__ import annotations

import pytest

from controlplane.model.fleet import SyncState
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, Snapshot
from controlplane.xds.server.channel import MAX_MESSAGE_CHARACTERS
from controlplane.xds.server.messages import Answer, Refusal, RefusalCode, Variant
from tests.support.xds_machine import Bench, flow
from tests.support.xds_resources import resource, simple, snapshot

BOTH = pytest.mark.parametrize("variant", list(Variant))
IS_SOTW = Variant.SOTW


def three(a: int = 1, b: int = 1, c: int = 1) -> Snapshot:
    return simple(endpoints={"a": a, "b": b, "c": c})


# ── ACK, NACK, nonce ──────────────────────────────────────────────────────────────────────────────


@BOTH
def test_rule_6_a_refused_version_is_not_sent_again(variant: Variant) -> None:
    bench = Bench(variant)
    first, second = simple(clusters={"a": 1}), simple(clusters={"a": 2})
    bench.publish(first)
    bench.ask(CLUSTER)
    bench.settle()
    bench.publish(second)
    (push,) = bench.drain()

    answer = bench.answer(push, error="no")

    assert isinstance(answer, Answer)
    assert answer.error == "no"
    for _ in range(3):
        bench.ask(CLUSTER, nonce=push.nonce)
        bench.publish(simple(clusters={"a": 2}, endpoints={"z": 1}))
        assert bench.drain() == []
    status = bench.status(CLUSTER)
    assert status.state is SyncState.NACKED
    assert status.nack_message == "no"
    assert status.nacked_version == second.sets[CLUSTER].version
    assert status.acked_version == first.sets[CLUSTER].version


@BOTH
def test_rule_6_content_that_returns_to_the_last_good_is_sent(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(simple(clusters={"a": 1}))
    bench.ask(CLUSTER)
    bench.settle()
    bench.publish(simple(clusters={"a": 2}))
    bench.answer(bench.drain()[0], error="no")

    bench.publish(simple(clusters={"a": 1}))

    assert flow(bench.settle()) == ["CDS a"], "parts of the refused version may have been applied"
    assert bench.status(CLUSTER).state is SyncState.SYNCED
    assert bench.status(CLUSTER).nack_message == ""


@BOTH
def test_rule_6_an_empty_error_message_is_still_a_refusal(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(simple(clusters={"a": 1}))
    bench.ask(CLUSTER)
    bench.answer(bench.drain()[0], error="")
    assert bench.status(CLUSTER).state is SyncState.NACKED


@BOTH
def test_rule_6_a_long_message_is_cut_in_its_middle(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(simple(clusters={"a": 1}))
    bench.ask(CLUSTER)
    # Envoy writes the whole resource out, and then what is wrong with it.
    bench.answer(bench.drain()[0], error="cluster a:" + "x" * 1_000_000 + ": bad timeout")
    message = bench.status(CLUSTER).nack_message
    assert len(message) <= MAX_MESSAGE_CHARACTERS
    assert message.startswith("cluster a:")
    assert message.endswith(": bad timeout")


@BOTH
def test_rule_7_a_stale_nonce_is_no_ack(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(three(a=1))
    bench.ask(ENDPOINT, "a")
    (early,) = bench.drain()
    bench.publish(three(a=2))
    (late,) = bench.drain()

    bench.answer(early)
    assert bench.status(ENDPOINT).state is SyncState.STALE
    assert bench.answer(early) is None, "answered already"
    assert bench.ask(ENDPOINT, *(["a"] if variant is IS_SOTW else []), nonce="never seen") is None
    assert bench.status(ENDPOINT).state is SyncState.STALE

    bench.answer(late)
    assert bench.status(ENDPOINT).state is SyncState.SYNCED


@BOTH
def test_rule_7_a_subscription_in_a_stale_request_is_not_lost(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(three())
    bench.ask(ENDPOINT, "a")
    bench.settle()
    bench.ask(ENDPOINT, *(["a", "b"] if variant is IS_SOTW else ["b"]), nonce="stale")
    assert flow(bench.drain()) == ["EDS b"]


@BOTH
def test_rule_7_a_client_that_never_echoes_nonces_gets_the_next_push(variant: Variant) -> None:
    bench = Bench(variant)
    bench.ask(ENDPOINT, "a")
    for content in range(100):
        bench.publish(three(a=content))
        assert flow(bench.drain()) == ["EDS a"]
        bench.ask(ENDPOINT, *(["a"] if variant is IS_SOTW else []))
        assert bench.drain() == [], "a request without a nonce is no new question"


@BOTH
def test_rule_7_nonces_are_unique(variant: Variant) -> None:
    bench = Bench(variant)
    bench.ask(CLUSTER)
    bench.ask(ENDPOINT, "a")
    for content in range(5):
        bench.publish(simple(clusters={"a": content}, endpoints={"a": content}))
        bench.settle()
    nonces = [push.nonce for push in bench.sent]
    assert len(nonces) == len(set(nonces)) == 10


@BOTH
def test_rule_7_an_answer_under_another_types_name_is_matched_by_nonce(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(simple(clusters={"a": 1}, listeners={"l": 1}))
    bench.ask(CLUSTER)
    bench.ask(LISTENER)
    (clusters,) = bench.drain()
    bench.ask(LISTENER, nonce=clusters.nonce)
    assert bench.status(CLUSTER).state is SyncState.SYNCED
    assert flow(bench.settle()) == ["LDS l"]


def test_rule_8_sotw_answers_the_first_request_whatever_version_it_names() -> None:
    bench = Bench(Variant.SOTW)
    bench.publish(three())
    bench.ask(ENDPOINT, "a", nonce="of an earlier stream")
    assert flow(bench.drain()) == ["EDS a"]


@BOTH
def test_rule_8_an_empty_world_is_an_answer_too(variant: Variant) -> None:
    bench = Bench(variant)
    bench.ask(CLUSTER)
    assert bench.drain() == [], "before the first snapshot nothing is known"
    bench.publish(simple())
    assert flow(bench.settle()) == ["CDS"]
    assert bench.drain() == []


def test_rule_8_delta_skips_what_the_client_says_it_has() -> None:
    bench = Bench(Variant.DELTA)
    now = simple(clusters={"a": 1, "b": 2}, endpoints={"a": 1, "b": 2})
    versions = {name: each.version for name, each in now.sets[ENDPOINT].resources.items()}
    bench.publish(now)
    bench.ask(CLUSTER, versions={n: r.version for n, r in now.sets[CLUSTER].resources.items()})
    bench.ask(ENDPOINT, "a", "b", versions=versions)
    assert bench.drain() == []
    assert bench.status(ENDPOINT).state is SyncState.SYNCED
    assert bench.status(CLUSTER).acked_version == now.sets[CLUSTER].version


def test_rule_8_delta_reconnect_hears_of_changes_and_removals() -> None:
    bench = Bench(Variant.DELTA)
    bench.ask(CLUSTER, versions={"a": "old", "gone": "old"})
    bench.ask(ENDPOINT, "a", "new", versions={"a": "old"})
    bench.publish(simple(clusters={"a": 1}, endpoints={"a": 1, "new": 1}))
    assert flow(bench.settle()) == ["CDS a -gone", "EDS a new"]


def test_rule_8_delta_sends_subscribed_names_again() -> None:
    bench = Bench(Variant.DELTA)
    bench.publish(simple(clusters={"a": 1, "b": 1}))
    bench.ask(CLUSTER)
    bench.settle()
    bench.ask(CLUSTER, "a")
    assert flow(bench.settle()) == ["CDS a"]
    bench.ask(CLUSTER, "*")
    assert flow(bench.settle()) == ["CDS a b"]


# ── Subscriptions ─────────────────────────────────────────────────────────────────────────────────


def test_rule_9_sotw_wildcards() -> None:
    bench = Bench(Variant.SOTW)
    bench.publish(simple(clusters={"a": 1, "b": 1}, listeners={"l": 1}))
    bench.ask(CLUSTER)
    assert flow(bench.settle()) == ["CDS a b"]
    bench.ask(CLUSTER, "a")
    bench.settle()
    bench.publish(simple(clusters={"a": 2, "b": 2}, listeners={"l": 1}))
    assert flow(bench.settle()) == ["CDS a"]
    bench.ask(CLUSTER)
    bench.publish(simple(clusters={"a": 3, "b": 3}, listeners={"l": 1}))
    assert flow(bench.settle()) == [], "after names were given, empty means none"
    bench.ask(CLUSTER, "*", "a")
    assert flow(bench.settle()) == ["CDS a b"]


@BOTH
def test_rule_9_explicit_wildcard(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(simple(listeners={"l": 1, "m": 1}))
    bench.ask(LISTENER, "*")
    assert flow(bench.settle()) == ["LDS l m"]
    bench.publish(simple(listeners={"l": 1, "m": 1, "n": 1}))
    assert flow(bench.settle()) == ["LDS l m n" if variant is IS_SOTW else "LDS n"]


def test_rule_9_delta_names_beside_a_wildcard() -> None:
    bench = Bench(Variant.DELTA)
    bench.publish(simple(clusters={"a": 1, "b": 1}))
    bench.ask(CLUSTER, "*", "missing")
    assert flow(bench.settle()) == ["CDS a b -missing"]
    bench.ask(CLUSTER, drop=["*"])
    bench.publish(simple(clusters={"a": 2, "b": 2, "missing": 1}))
    assert flow(bench.settle()) == ["CDS missing"]


def test_rule_9_delta_unsubscribing_a_name_under_a_wildcard_tells_its_state() -> None:
    bench = Bench(Variant.DELTA)
    bench.publish(simple(clusters={"a": 1, "b": 1}))
    bench.ask(CLUSTER)
    bench.settle()
    bench.ask(CLUSTER, drop=["a", "missing"])
    assert flow(bench.settle()) == ["CDS a -missing"]


@BOTH
@pytest.mark.parametrize("type_url", [ENDPOINT, ROUTE, SECRET])
def test_rule_9_empty_is_no_interest_in_other_types(variant: Variant, type_url: str) -> None:
    bench = Bench(variant)
    bench.publish(snapshot({type_url: [resource("a")]}))
    bench.ask(type_url)
    assert bench.drain() == []


def test_rule_9_one_empty_name_means_none() -> None:
    bench = Bench(Variant.SOTW)
    bench.publish(simple(clusters={"a": 1}))
    bench.ask(CLUSTER, "")
    assert bench.drain() == []


@BOTH
def test_rule_10_a_missing_name_is_told_and_sent_once_it_exists(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(three())
    bench.ask(ENDPOINT, "later")
    assert flow(bench.settle()) == ["EDS -later"]
    bench.publish(simple(endpoints={"later": 1}))
    assert flow(bench.settle()) == ["EDS later"]


def test_rule_10_delta_removed_and_added_again() -> None:
    bench = Bench(Variant.DELTA)
    bench.publish(three())
    bench.ask(ENDPOINT, "a")
    bench.settle()
    bench.publish(simple())
    assert flow(bench.settle()) == ["EDS -a"]
    bench.publish(three())
    assert flow(bench.settle()) == ["EDS a"]


@BOTH
@pytest.mark.fault("R17")
def test_rule_10_missing_routes_are_answered_so_that_warming_ends(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(simple())
    bench.ask(ROUTE, "r")
    assert flow(bench.settle()) == ["RDS -r"]
    bench.ask(ROUTE, "r")
    if variant is IS_SOTW:
        assert bench.drain() == []


@BOTH
def test_rule_11_unsubscribe_then_resubscribe_sends_again(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(three())
    bench.ask(ENDPOINT, "a", "b")
    bench.settle()
    if variant is IS_SOTW:
        bench.ask(ENDPOINT, "a")
        assert bench.drain() == []
        bench.ask(ENDPOINT, "a", "b")
    else:
        bench.ask(ENDPOINT, drop=["b"])
        assert bench.drain() == []
        bench.ask(ENDPOINT, "b")
    assert flow(bench.drain()) == ["EDS b"]


@BOTH
def test_rule_11_a_vanished_resource_does_not_shrink_the_subscription(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(simple(listeners={"l": 1, "m": 1}))
    bench.ask(LISTENER, "l", "m")
    bench.settle()
    bench.publish(simple(listeners={"l": 1}))
    bench.settle()
    bench.publish(simple(listeners={"l": 1, "m": 2}))
    assert flow(bench.settle()) == ["LDS l m" if variant is IS_SOTW else "LDS m"]


@BOTH
def test_rule_12_a_response_fits_the_subscription_at_the_moment_it_is_taken(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(three())
    bench.ask(ENDPOINT, "a", "b")
    if variant is IS_SOTW:
        bench.ask(ENDPOINT, "b")
    else:
        bench.ask(ENDPOINT, drop=["a"])
    assert flow(bench.drain()) == ["EDS b"]


@BOTH
def test_rule_12_only_the_newest_snapshot_is_sent(variant: Variant) -> None:
    bench = Bench(variant)
    bench.ask(ENDPOINT, "a")
    for content in range(10):
        bench.publish(three(a=content))
    (push,) = bench.drain()
    assert push.parcel.version == three(a=9).sets[ENDPOINT].version


def test_rule_13_sotw_full_sets_and_partial_updates() -> None:
    bench = Bench(Variant.SOTW)
    bench.publish(simple(clusters={"a": 1, "b": 1}, endpoints={"a": 1, "b": 1}))
    bench.ask(CLUSTER)
    bench.ask(ENDPOINT, "a", "b")
    bench.settle()
    bench.publish(simple(clusters={"a": 1, "b": 2}, endpoints={"a": 2, "b": 1}))
    assert flow(bench.settle()) == ["CDS a b", "EDS a b"]
    bench.publish(simple(clusters={"a": 1, "b": 2}, endpoints={"a": 3, "b": 1}))
    assert flow(bench.settle()) == ["EDS a"]


@BOTH
def test_rule_14_a_weight_change_touches_endpoints_only(variant: Variant) -> None:
    bench = Bench(variant)
    world = {"clusters": {"a": 1}, "listeners": {"l": 1}, "routes": {"l": 1}}
    bench.publish(simple(endpoints={"a": 1}, **world))
    for type_url, names in ((CLUSTER, ()), (ENDPOINT, ("a",)), (LISTENER, ()), (ROUTE, ("l",))):
        bench.ask(type_url, *names)
    bench.settle()
    bench.publish(simple(endpoints={"a": 2}, **world))
    assert flow(bench.settle()) == ["EDS a"]


# ── Refusals and unknown types ────────────────────────────────────────────────────────────────────


@BOTH
def test_rule_16_an_unknown_type_is_kept_and_not_answered(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(three())
    assert bench.ask("type.googleapis.com/unknown", "a") is None
    assert bench.drain() == []
    bench.publish(snapshot({"type.googleapis.com/unknown": [resource("a")]}))
    assert flow(bench.drain()) == ["type.googleapis.com/unknown a"]


@BOTH
def test_a_type_that_leaves_the_snapshot_is_not_taken_from_the_client(variant: Variant) -> None:
    bench = Bench(variant)
    bench.publish(snapshot({LISTENER: [resource("l")], CLUSTER: [resource("a")]}))
    bench.ask(LISTENER)
    bench.settle()
    bench.publish(snapshot({CLUSTER: [resource("a")]}))
    assert bench.drain() == []


@BOTH
@pytest.mark.parametrize(
    ("fixed_type", "asked", "code", "reason"),
    [
        ("", "", RefusalCode.INVALID_ARGUMENT, "empty_type"),
        (CLUSTER, LISTENER, RefusalCode.INVALID_ARGUMENT, "wrong_type"),
    ],
)
def test_rule_16_wrong_types_end_the_stream(
    variant: Variant, fixed_type: str, asked: str, code: RefusalCode, reason: str
) -> None:
    refusal = Bench(variant, fixed_type=fixed_type).ask(asked, "a")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason) == (code, reason)


@BOTH
def test_a_per_type_stream_may_leave_the_type_out(variant: Variant) -> None:
    bench = Bench(variant, fixed_type=CLUSTER)
    bench.publish(simple(clusters={"a": 1}))
    bench.ask("")
    assert flow(bench.drain()) == ["CDS a"]


@BOTH
@pytest.mark.fault("R23")
def test_names_are_capped(variant: Variant) -> None:
    bench = Bench(variant, names=10)
    assert bench.ask(ENDPOINT, *map(str, range(10))) is None
    refusal = bench.ask(ENDPOINT, *map(str, range(11)))
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.RESOURCE_EXHAUSTED
    long = bench.ask(ENDPOINT, "x" * 10_000)
    assert isinstance(long, Refusal)
    assert long.reason == ("name_length" if variant is IS_SOTW else "names")


def test_delta_names_are_capped_across_requests() -> None:
    bench = Bench(Variant.DELTA, names=10)
    assert bench.ask(ENDPOINT, *map(str, range(8))) is None
    assert isinstance(bench.ask(ENDPOINT, "a", "b", "c"), Refusal)


@BOTH
def test_types_are_capped(variant: Variant) -> None:
    bench = Bench(variant)
    results = [bench.ask(f"type{number}", "a") for number in range(11)]
    assert results[:10] == [None] * 10
    assert isinstance(results[10], Refusal)
