"""Clusters and requests that a real Envoy and the model are asked about."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.core.maglev import EdsHealth, Host
from controlplane.model.strategy import HashPolicy
from tests.support.maglev_envoy import Cluster

_HEALTH = {
    "h": EdsHealth.HEALTHY,
    "d": EdsHealth.DEGRADED,
    "u": EdsHealth.UNHEALTHY,
    "-": EdsHealth.DRAINING,
}
HEADER = HashPolicy(kind="header", name="x-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cluster before the upstream's port, and with it the default keys, is known.

    `health`, `zones` and `priorities` have one letter or digit for each host, in order.
    """

    name: str
    weights: Sequence[int]
    health: str = ""
    zones: str = ""
    priorities: str = ""
    keys: Sequence[str] = ()
    key_kind: str = "address"
    table_size: int = 65_537
    zone_weights: Mapping[str, int] | None = None

    def cluster(self, number: int, port: int) -> Cluster:
        """Place the hosts at ``127.0.<number>.1`` and up."""
        addresses = tuple(f"127.0.{number}.{index + 1}" for index in range(len(self.weights)))
        keys = self.keys or [f"{address}:{port}" for address in addresses]
        hosts = tuple(
            Host(
                key=key,
                weight=self.weights[index],
                health=_HEALTH[self.health[index] if self.health else "h"],
                zone=self.zones[index] if self.zones else "",
                priority=int(self.priorities[index]) if self.priorities else 0,
            )
            for index, key in enumerate(keys)
        )
        return Cluster(
            name=self.name,
            hosts=hosts,
            addresses=addresses,
            table_size=self.table_size,
            zones=self.zone_weights,
            key_kind=self.key_kind,
        )


def spread(count: int, *, heaviest: int, seed: int) -> list[int]:
    """Draw weights between 1 and `heaviest`, evenly on a logarithmic scale."""
    draw = random.Random(seed)  # noqa: S311 - a repeatable test, not cryptography
    return [max(1, round(heaviest ** draw.random())) for _ in range(count)]


CASES = (
    Case(name="ten", weights=spread(10, heaviest=1000, seed=1)),
    Case(name="pair", weights=[300, 700]),
    Case(
        name="fifty",
        weights=spread(50, heaviest=500_000, seed=2),
        keys=[f"pod-{i}" for i in range(50)],
        key_kind="metadata",
    ),
    Case(
        name="zones",
        weights=spread(24, heaviest=50, seed=3),
        zones="aaaaaaabbbbbbbbccccccccd",
        zone_weights={"a": 3, "b": 7, "c": 1, "d": 2},
    ),
    Case(name="three", weights=[333_333, 333_334, 333_333]),
    Case(
        name="hostnames",
        weights=spread(12, heaviest=10, seed=4),
        keys=[f"gpu{i}.example" for i in range(12)],
        key_kind="hostname",
        table_size=4099,
    ),
    Case(name="prime", weights=spread(20, heaviest=9, seed=5), table_size=251),
    Case(name="crowded", weights=spread(20, heaviest=9, seed=6), table_size=13),
    Case(
        name="last_bit_flat",
        weights=[5, 8, 30, 18, 14, 26, 9, 27, 21, 27, 7],
        keys=[f"pod-{i}" for i in range(11)],
        key_kind="metadata",
    ),
    Case(
        name="last_bit_zones",
        weights=[14, 5, 12, 25, 12, 12, 25, 25, 7, 1, 27, 9],
        keys=[f"pod-{i}" for i in range(12)],
        key_kind="metadata",
        zones="aaaaaabbbbbb",
        zone_weights={"a": 9, "b": 7},
    ),
    Case(name="single", weights=[5]),
    Case(name="sick", weights=spread(12, heaviest=40, seed=7), health="hhhhhhhhdu--"),
    Case(name="panic", weights=spread(10, heaviest=40, seed=8), health="hhhuuuu---"),
    Case(name="exactly_half", weights=spread(8, heaviest=40, seed=8), health="hhhduuuu"),
    Case(name="degraded", weights=[1, 2, 3], health="ddd"),
    Case(name="drained", weights=[1, 2, 3], health="---"),
    Case(
        name="sick_zones",
        weights=spread(12, heaviest=9, seed=9),
        zones="aaaabbbbcccc",
        health="huuhhhhhuu--",
        zone_weights={"a": 5, "b": 4, "c": 9},
    ),
    Case(name="zone_without_weight", weights=[1, 2, 3, 4], zones="aabb", zone_weights={"a": 5}),
    Case(
        name="spill",
        weights=spread(15, heaviest=9, seed=10),
        priorities="000001111122222",
        health="hhuuuhhhduhhhhh",
    ),
    Case(
        name="spill_degraded",
        weights=spread(10, heaviest=9, seed=11),
        priorities="0000011111",
        health="hdduuhuuuu",
    ),
    Case(
        name="total_panic",
        weights=spread(9, heaviest=9, seed=12),
        priorities="001111111",
        health="uuhuuuuu-",
    ),
    Case(
        name="one_panics",
        weights=spread(9, heaviest=9, seed=13),
        priorities="000001111",
        health="huuuuhhuu",
    ),
)

MAIN = ("ten", "pair", "fifty", "zones")
"""Asked for 5,000 keys each; the other cases have one rule each to show."""

POLICIES: dict[str, tuple[HashPolicy, ...]] = {
    "header": (HEADER,),
    "cookie": (HashPolicy(kind="cookie", name="session"),),
    "query": (HashPolicy(kind="query_parameter", name="user"),),
    "source": (HashPolicy(kind="source_ip"),),
    "both": (HEADER, HashPolicy(kind="query_parameter", name="user")),
    "terminal": (
        HashPolicy(kind="header", name="x-key", terminal=True),
        HashPolicy(kind="query_parameter", name="user"),
    ),
    "late_terminal": (
        HEADER,
        HashPolicy(kind="cookie", name="session", terminal=True),
        HashPolicy(kind="query_parameter", name="user"),
    ),
    "three": (HEADER, HashPolicy(kind="cookie", name="session"), HashPolicy(kind="source_ip")),
    "path": (HashPolicy(kind="header", name=":path"),),
}

REQUESTS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("x-key", "alpha"),),
    (("x-key", "Alpha"),),
    (("x-key", "  padded \t"),),
    (("x-key", "a, b"),),
    (("x-key", "b"), ("x-key", "a"), ("X-Key", "c")),
    (("x-key", "b"), ("x-key", "a"), ("x-key", "b")),
    (("x-key", ""),),
    (("x-key", "zürich"),),
    (("cookie", 'first=1; session="quoted"; session=second'),),
    (("cookie", "session=plain"), ("x-key", "one")),
    (("cookie", "other=1"), ("cookie", "session=two"), ("x-key", "two")),
    (("cookie", "session=a=b"),),
    (("cookie", "xsession=1;session=tight"),),
    ((":path", "/p?user=eve&user=bob"),),
    ((":path", "/p?a=1&user=%41%20b"), ("x-key", "three")),
    ((":path", "/p?user="), ("cookie", "session=three")),
    ((":path", "/p?user"), ("cookie", "session=three")),
    ((":path", "/p?user=eve"), ("x-key", "four"), ("cookie", "session=four")),
    ((":path", "/p?xuser=1&User=2&user=3"),),
)
"""Header lines of one request each; ``/`` is the path where none is given."""
