"""Request hashes and priority loads; Envoy's own answers are asked for in the integration tests."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.maglev import EdsHealth, Host, Request, request_hash
from controlplane.core.maglev.priorities import PriorityLoad, choose_priority, priority_loads
from controlplane.model.strategy import HashPolicy

HEADER = HashPolicy(kind="header", name="X-Key")
COOKIE = HashPolicy(kind="cookie", name="s")
QUERY = HashPolicy(kind="query_parameter", name="u")
SOURCE = HashPolicy(kind="source_ip")


def _xxh(text: str, seed: int = 0) -> int:
    return xxhash.xxh64_intdigest(text.encode(), seed)


def _rotate(value: int) -> int:
    return ((value << 1) | (value >> 63)) % 2**64


@pytest.mark.parametrize(
    ("policy", "headers", "expected"),
    [
        (HEADER, [("x-key", "Value")], _xxh("Value")),
        (HEADER, [("x-key", " a, b\t")], _xxh("a, b")),
        (HEADER, [("x-key", "")], _xxh("")),
        (HEADER, [("x-key", "b"), ("X-KEY", "a")], _xxh("b", _xxh("a", 0))),
        (HEADER, [("other", "a")], None),
        (COOKIE, [("cookie", 'a=1; s="q"; s=2')], _xxh("q")),
        (COOKIE, [("cookie", "a=1"), ("cookie", "s=x=y")], _xxh("x=y")),
        (COOKIE, [("cookie", "xs=1; s")], None),
        (COOKIE, [], None),
        (QUERY, [(":path", "/?u=%41&u=2")], _xxh("%41")),
        (QUERY, [(":path", "/?v=1")], None),
        (QUERY, [(":path", "/u=1")], None),
    ],
)
def test_one_policy(policy: HashPolicy, headers: list[tuple[str, str]], expected: int | None) -> None:
    assert request_hash([policy], Request(headers=tuple(headers))) == expected


def test_the_source_address_without_port() -> None:
    assert request_hash([SOURCE], Request(source_ip="10.1.2.3")) == _xxh("10.1.2.3")
    assert request_hash([SOURCE], Request()) is None


def test_several_policies_combine_and_skip_what_is_absent() -> None:
    request = Request(headers=(("x-key", "k"), (":path", "/?u=q")), source_ip="::1")
    expected = _rotate(_rotate(_xxh("k")) ^ _xxh("q")) ^ _xxh("::1")
    assert request_hash([COOKIE, HEADER, QUERY, SOURCE], request) == expected


def test_terminal_stops_once_there_is_a_hash() -> None:
    terminal = HashPolicy(kind="cookie", name="s", terminal=True)
    request = Request(headers=(("x-key", "k"),), source_ip="::1")
    assert request_hash([HEADER, terminal, SOURCE], request) == _xxh("k")
    assert request_hash([terminal, SOURCE], request) == _xxh("::1")


def test_a_cookie_that_envoy_would_make_up_is_not_known() -> None:
    made = HashPolicy(kind="cookie", name="s", ttl_seconds=0)
    assert request_hash([HEADER, made], Request(headers=(("x-key", "k"),))) is None
    assert request_hash([made], Request(headers=(("cookie", "s=1"),))) == _xxh("1")


def _levels(*health: str) -> list[list[Host]]:
    names = {
        "h": EdsHealth.HEALTHY,
        "d": EdsHealth.DEGRADED,
        "u": EdsHealth.UNHEALTHY,
        "-": EdsHealth.DRAINING,
    }
    return [
        [Host(key=f"{level}-{index}", health=names[letter]) for index, letter in enumerate(letters)]
        for level, letters in enumerate(health)
    ]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["hhh"], [(100, 0, False)]),
        # 140 * 5 // 7 = 100: enough to carry everything.
        (["hhhhhuu"], [(100, 0, False)]),
        # All load on the only priority, though it is only 70 % available; half healthy: no panic.
        (["hhuu"], [(100, 0, False)]),
        (["huuu"], [(100, 0, True)]),
        # Draining hosts are not counted.
        (["h---"], [(100, 0, False)]),
        (["---"], [(100, 0, True)]),
        ([""], [(100, 0, True)]),
        (["dd"], [(0, 100, False)]),
        # 140 * 2 // 5 = 56, the rest spills over.
        (["hhuuu", "hhh"], [(56, 0, False), (44, 0, False)]),
        (["", "hh"], [(0, 0, False), (100, 0, False)]),
        # 46 % + 46 % healthy; total 92: both below 50 % panic, load by number of hosts.
        (["huu", "huu"], [(50, 0, True), (50, 0, True)]),
        # 35 % + 70 % available in all: nobody panics, not even the level without a healthy host.
        (["hddu", "u"], [(35, 65, False), (0, 0, False)]),
    ],
)
def test_loads_by_hand(levels: list[str], expected: list[tuple[int, int, bool]]) -> None:
    loads = priority_loads(_levels(*levels))
    assert [(load.healthy, load.degraded, load.is_panic) for load in loads] == expected


@given(st.lists(st.text("hdu-", max_size=12), min_size=1, max_size=5))
def test_loads_always_sum_to_100(health: list[str]) -> None:
    loads = priority_loads(_levels(*health))
    assert sum(load.healthy + load.degraded for load in loads) == 100
    assert all(load.healthy >= 0 and load.degraded >= 0 for load in loads)
    assert {choose_priority(loads, h) for h in range(100)} <= set(range(len(health)))


def test_healthy_loads_come_before_degraded_ones() -> None:
    loads = (PriorityLoad(30, 20, is_panic=False), PriorityLoad(40, 10, is_panic=False))
    assert [choose_priority(loads, h) for h in (0, 29, 30, 69, 70, 89, 90, 99, 100)] == [
        0, 0, 1, 1, 0, 0, 1, 1, 0,
    ]  # fmt: skip
