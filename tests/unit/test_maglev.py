"""Tables, turns, weights: by hand, against the plain loop, and at the edges of the rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.maglev import (
    EdsHealth,
    Host,
    build_balancer,
    build_table,
    canary_cluster,
    hosts_of,
    moves,
    slots_by_host,
)
from controlplane.core.maglev.disruption import moved_share
from controlplane.core.maglev.fill import fill_in_turn
from controlplane.core.maglev.turns import turn_order
from controlplane.core.maglev.weights import eligible_hosts, flat_weights, zone_weights
from controlplane.model.plan import ClusterShare
from controlplane.model.strategy import Locality
from controlplane.model.topology import Endpoint, Health, ServiceTopology
from controlplane.model.weights import WeightVector
from tests.support.maglev_plain import plain_owners

PRIMES = (2, 3, 5, 13, 101, 251, 1009)
weights_lists = st.lists(st.integers(1, 1_000_000), min_size=2, max_size=40)


def _int32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def _int64(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_the_example_of_the_maglev_paper() -> None:
    # Eisenbud et al., "Maglev", NSDI 2016, table 1: (offset, skip) = (3, 4), (0, 2), (3, 1), M = 7.
    before = fill_in_turn(_int32(0, 1, 2, 0, 1, 2, 0), _int64(3, 0, 3), _int64(4, 2, 1))
    assert before.tolist() == [1, 0, 1, 0, 2, 2, 0]

    after = fill_in_turn(_int32(0, 2, 0, 2, 0, 2, 0), _int64(3, 0, 3), _int64(4, 2, 1))
    assert after.tolist() == [0, 0, 0, 0, 2, 2, 2]


def test_turns_of_a_host_with_half_the_weight_by_hand() -> None:
    # Round: who takes. 1: both. 2: both (2 * 0.5 >= 1). 3: heavy. 4: both. 5: heavy. 6: both.
    assert turn_order(np.array([1.0, 0.5]), 11).tolist() == [0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0]


def test_everybody_has_a_turn_in_the_first_round() -> None:
    order = turn_order(np.array([1e-9, 1.0, 1e-6]), 11)
    assert order[:3].tolist() == [0, 1, 2]
    assert order[3:].tolist() == [1] * 8


@settings(max_examples=150)
@given(weights=weights_lists, table_size=st.sampled_from(PRIMES))
def test_fast_and_plain_tables_are_equal(weights: list[int], table_size: int) -> None:
    hosts = [Host(key=f"10.0.0.{index}:80", weight=weight) for index, weight in enumerate(weights)]
    keys, normalised = [host.key for host in hosts], flat_weights(hosts)

    table = build_table(keys, normalised, table_size)

    assert table.owners.tolist() == plain_owners(keys, normalised.tolist(), table_size)


@pytest.mark.parametrize(
    "weights", [[1] * 3, [7] * 50, [1, 2, 3], [1, 1_000_000], [1] * 30 + [1000], [3, 3, 7] * 9]
)
def test_full_size_tables_are_equal_too(weights: list[int]) -> None:
    hosts = [Host(key=f"host-{index}", weight=weight) for index, weight in enumerate(weights)]
    keys, normalised = [host.key for host in hosts], flat_weights(hosts)

    table = build_table(keys, normalised, 65_537)

    assert table.owners.tolist() == plain_owners(keys, normalised.tolist(), 65_537)


def test_turns_come_due_by_an_accumulated_sum_not_by_a_product() -> None:
    # With 0.1 the 10-fold sum is 0.9999999999999999 while 10 * 0.1 is 1.0, so rounding shows: the
    # plain loop accumulates, and some host's turn comes a round earlier than by the product.
    weights = np.array([0.1, 0.1 / 3, 0.07])
    keys = ["a", "b", "c"]

    by_product = _order_by_product(weights, 65_537)

    assert build_table(keys, weights, 65_537).owners.tolist() == plain_owners(
        keys, weights.tolist(), 65_537
    )
    assert turn_order(weights, 65_537).tolist() != by_product


def _order_by_product(weights: np.ndarray[tuple[int], np.dtype[np.float64]], turns: int) -> list[int]:
    heaviest, taken, t = float(weights.max()), [0] * len(weights), 0
    order: list[int] = []
    while len(order) < turns:
        t += 1
        for host, weight in enumerate(weights.tolist()):
            if t * weight >= taken[host] * heaviest:
                order.append(host)
                taken[host] += 1
    return order[:turns]


def test_order_of_the_hosts_is_irrelevant() -> None:
    hosts = [Host(key=f"ключ-{index}", weight=index + 1) for index in range(9)]
    forwards = build_table([host.key for host in hosts], flat_weights(hosts), 1009)
    hosts.reverse()
    backwards = build_table([host.key for host in hosts], flat_weights(hosts), 1009)

    assert [forwards.owner(h) for h in range(1009)] == [backwards.owner(h) for h in range(1009)]


def test_one_host_owns_everything() -> None:
    table = build_table(["only"], np.array([1.0]), 13)
    assert slots_by_host(table) == {"only": 13}


def test_more_hosts_than_slots_leaves_the_last_keys_out() -> None:
    keys = [f"host-{index}" for index in range(7)]
    counts = slots_by_host(build_table(keys, np.full(7, 1 / 7), 5))
    assert [counts[key] for key in sorted(keys)] == [1] * 5 + [0] * 2


@pytest.mark.parametrize(
    ("keys", "weights", "table_size"),
    [
        ([], [], 13),
        (["a", "a"], [0.5, 0.5], 13),
        (["a", "b"], [1.0], 13),
        (["a", "b"], [1.0, 0.0], 13),
        (["a", "b"], [1.0, float("nan")], 13),
        (["a", "b"], [1.0, float("inf")], 13),
        (["a", "b"], [0.5, 0.5], 1),
        (["a", "b"], [0.5, 0.5], 5_000_012),
    ],
)
def test_what_envoy_would_refuse_or_differ_on_is_refused(
    keys: list[str], weights: list[float], table_size: int
) -> None:
    with pytest.raises(ValueError, match="table"):
        build_table(keys, np.array(weights, dtype=np.float64), table_size)


@pytest.mark.parametrize("wrong", [{"key": ""}, {"weight": 0}, {"priority": 128}, {"priority": -1}])
def test_a_wrong_host_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"key|weight|priority"):
        Host(**({"key": "a"} | wrong))  # type: ignore[arg-type] # wrong on purpose


def test_flat_weights_refuse_a_sum_above_envoys() -> None:
    with pytest.raises(ValueError, match="4294967296"):
        flat_weights([Host(key="a", weight=2**31), Host(key="b", weight=2**31)])


def test_zone_shares_are_not_scaled_by_availability() -> None:
    # Zone a lost two of three hosts, zone c all of them, zone d has no weight.
    hosts = [Host(key="a1", zone="a", weight=5), Host(key="b1", zone="b", weight=1)]
    hosts += [Host(key="b2", zone="b", weight=3), Host(key="d1", zone="d", weight=9)]

    taking_part, weights = zone_weights(hosts, {"a": 2, "b": 2, "c": 4}, ["a", "b", "c", "d"])

    assert [host.key for host in taking_part] == ["a1", "b1", "b2"]
    assert weights.tolist() == [2 / 8, 1 * (2 / 8) / 4, 3 * (2 / 8) / 4]


def test_no_zone_weight_means_no_table() -> None:
    balancer = build_balancer(
        [Host(key="a", zone="a"), Host(key="b", zone="a")], table_size=13, zones={"z": 1}
    )
    assert balancer.tables == (None,)
    assert balancer.pick(5) is None


@pytest.mark.parametrize(
    ("health", "is_panic", "expected"),
    [("hdu-", False, "h"), ("hdu-", True, "hdu-"), ("d", False, "")],
)
def test_only_healthy_hosts_are_eligible_outside_panic(health: str, is_panic: bool, expected: str) -> None:  # noqa: FBT001 - a table of cases
    names = dict(zip("hdu-", EdsHealth, strict=True))
    hosts = [Host(key=letter, health=names[letter]) for letter in health]
    assert "".join(host.key for host in eligible_hosts(hosts, is_panic=is_panic)) == expected


def test_hosts_come_from_topology_weights_and_zones() -> None:
    topology = ServiceTopology(
        "llm",
        (
            Endpoint(address="10.0.0.1", port=80, zone="a"),
            Endpoint(address="10.0.0.2", port=80, zone="b", health=Health.DRAINING, hash_key="pod-2"),
        ),
    )
    weights = WeightVector(topology.ids, (3, 4))

    assert hosts_of(topology, weights, Locality(priorities={"b": 1})) == (
        Host(key="10.0.0.1:80", weight=3, zone="a"),
        Host(key="pod-2", weight=4, zone="b", priority=1, health=EdsHealth.DRAINING),
    )


def test_no_hosts_at_all_pick_nobody() -> None:
    assert build_balancer([], table_size=13).pick(7) is None


def test_a_retry_inverts_the_hash() -> None:
    balancer = build_balancer([Host(key=f"{index}") for index in range(5)], table_size=1009)
    table = balancer.tables[0]
    assert table is not None
    assert balancer.pick(77, attempt=2) == table.owner(77 ^ (2**64 - 2))


def test_a_compiled_fill_can_take_over() -> None:
    seen = []

    def recording(
        order: np.ndarray[tuple[int], np.dtype[np.int32]],
        starts: np.ndarray[tuple[int], np.dtype[np.int64]],
        steps: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        seen.append(len(order))
        return fill_in_turn(order, starts, steps)

    build_balancer([Host(key="a"), Host(key="b")], table_size=13, fill=recording)
    assert seen == [13]


SPLIT = (ClusterShare("canary", 3), ClusterShare("stable", 7))


def test_the_split_is_by_intervals_in_order() -> None:
    assert [canary_cluster(h, SPLIT) for h in (0, 2, 3, 9, 10, 13)] == [
        "canary", "canary", "stable", "stable", "canary", "stable",
    ]  # fmt: skip
    assert canary_cluster(0, (ClusterShare("canary", 0), ClusterShare("stable", 7))) == "stable"
    with pytest.raises(ValueError, match="at least one part"):
        canary_cluster(0, (ClusterShare("canary", 0),))


@given(request_hash=st.integers(0, 2**64 - 1), low=st.integers(0, 100_003), more=st.integers(0, 100_003))
def test_raising_the_canary_never_moves_a_key_back(request_hash: int, low: int, more: int) -> None:
    high = min(100_003, low + more)
    before, after = (
        canary_cluster(
            request_hash, (ClusterShare("canary", parts), ClusterShare("stable", 100_003 - parts))
        )
        for parts in (low, high)
    )
    assert not (before == "canary" and after == "stable")


@settings(max_examples=50)
@given(before=weights_lists, after=weights_lists)
def test_moves_account_for_every_slot(before: list[int], after: list[int]) -> None:
    tables = []
    for weights in (before, after):
        hosts = [Host(key=f"h{index}", weight=weight) for index, weight in enumerate(weights)]
        tables.append(build_table([host.key for host in hosts], flat_weights(hosts), 1009))
    old, new = tables

    found = moves(old, new)

    changed = [(old.owner(h), new.owner(h)) for h in range(1009) if old.owner(h) != new.owner(h)]
    assert found.moved_slots == len(changed)
    assert found.by_pair == {pair: changed.count(pair) for pair in set(changed)}
    assert list(found.by_pair.values()) == sorted(found.by_pair.values(), reverse=True)
    assert found.share == len(changed) / 1009
    gained = dict.fromkeys(new.keys, 0) | slots_by_host(new)
    for (source, target), slots in found.by_pair.items():
        gained[target] -= slots
        gained[source] = gained.get(source, 0) + slots
    assert {key: count for key, count in gained.items() if count} == {
        key: count for key, count in slots_by_host(old).items() if count
    }


def test_moved_share_is_the_same_figure() -> None:
    hosts = [Host(key=f"h{index}", weight=10 + index) for index in range(10)]
    keys = [host.key for host in hosts]
    old = build_table(keys, np.full(10, 0.1), 1009)
    new = build_table(keys, flat_weights(hosts), 1009)

    assert moved_share(old, new) == moves(old, new).share
    with pytest.raises(ValueError, match="same keys"):
        moved_share(old, build_table(keys[:9], np.full(9, 0.1), 1009))
    with pytest.raises(ValueError, match="cannot be compared"):
        moves(old, build_table(keys, np.full(10, 0.1), 251))


def test_tables_are_frozen() -> None:
    table = build_table(["a", "b"], np.array([0.5, 0.5]), 13)
    with pytest.raises(ValueError, match="read-only"):
        table.owners[0] = 1
