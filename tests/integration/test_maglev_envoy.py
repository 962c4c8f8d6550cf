"""The real Envoy and `core.maglev` must agree on every single request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from controlplane.core.maglev import (
    Balancer,
    EdsHealth,
    Host,
    Request,
    build_balancer,
    canary_cluster,
    request_hash,
)
from controlplane.model.plan import ClusterShare
from controlplane.model.rollout import TOTAL_PARTS
from controlplane.model.strategy import HashPolicy
from tests.support.maglev_envoy import Cluster, MaglevEnvoy, Picked, Route, Upstream, running_envoy

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

HEALTHY, DEGRADED = EdsHealth.HEALTHY, EdsHealth.DEGRADED
UNHEALTHY, DRAINING = EdsHealth.UNHEALTHY, EdsHealth.DRAINING

HEADER = HashPolicy(kind="header", name="x-key")
CANARY_PARTS = 10_000


def _cluster(
    name: str,
    weights: Sequence[int],
    *,
    health: Sequence[EdsHealth] = (),
    zones: Sequence[str] = (),
    priorities: Sequence[int] = (),
    keys: Sequence[str] = (),
    **options: object,
) -> tuple[str, list[dict[str, object]], Sequence[str], dict[str, object]]:
    """Describe a cluster; its port, and with it the default keys, is known only once a server listens."""
    hosts: list[dict[str, object]] = [
        {
            "weight": weight,
            "health": health[index] if health else HEALTHY,
            "zone": zones[index] if zones else "",
            "priority": priorities[index] if priorities else 0,
        }
        for index, weight in enumerate(weights)
    ]
    return name, hosts, keys, options


def _weights(count: int, *, heaviest: int, seed: int) -> list[int]:
    draw = random.Random(seed)  # noqa: S311 - a repeatable test, not cryptography
    return [max(1, round(heaviest ** draw.random())) for _ in range(count)]


DESCRIBED = [
    _cluster("ten", _weights(10, heaviest=1000, seed=1)),
    _cluster("pair", [300, 700]),
    _cluster("three", [333_333, 333_334, 333_333]),
    _cluster(
        "fifty",
        _weights(50, heaviest=500_000, seed=2),
        keys=[f"pod-{i}" for i in range(50)],
        key_kind="metadata",
    ),
    _cluster("zones", _weights(24, heaviest=50, seed=3), zones="aaaaaaabbbbbbbbccccccccd",
             zone_weights={"a": 3, "b": 7, "c": 1, "d": 2}),
    _cluster("hostnames", _weights(12, heaviest=10, seed=4), keys=[f"gpu{i}.example" for i in range(12)],
             key_kind="hostname", table_size=4099),
    _cluster("prime", _weights(20, heaviest=9, seed=5), table_size=251),
    _cluster("crowded", _weights(20, heaviest=9, seed=6), table_size=13),
    _cluster("single", [5]),
    _cluster("sick", _weights(12, heaviest=40, seed=7), health=[HEALTHY] * 8 + [DEGRADED, UNHEALTHY, DRAINING, DRAINING]),
    _cluster("panic", _weights(10, heaviest=40, seed=8), health=[HEALTHY] * 3 + [UNHEALTHY] * 4 + [DRAINING] * 3),
    _cluster("edge", _weights(8, heaviest=40, seed=8), health=[HEALTHY] * 3 + [DEGRADED] + [UNHEALTHY] * 4),
    _cluster("degraded", [1, 2, 3], health=[DEGRADED] * 3),
    _cluster("drained", [1, 2, 3], health=[DRAINING] * 3),
    _cluster("sick_zones", _weights(12, heaviest=9, seed=9), zones="aaaabbbbcccc",
             health=[HEALTHY, UNHEALTHY, UNHEALTHY, HEALTHY] + [HEALTHY] * 4 + [UNHEALTHY, UNHEALTHY, DRAINING, DRAINING],
             zone_weights={"a": 5, "b": 4, "c": 9}),
    _cluster("unweighted_zone", [1, 2, 3, 4], zones="aabb", zone_weights={"a": 5}),
    _cluster("spill", _weights(15, heaviest=9, seed=10), priorities=[0] * 5 + [1] * 5 + [2] * 5,
             health=[HEALTHY] * 2 + [UNHEALTHY] * 3 + [HEALTHY] * 3 + [DEGRADED, UNHEALTHY] + [HEALTHY] * 5),
    _cluster("spill_degraded", _weights(10, heaviest=9, seed=11), priorities=[0] * 5 + [1] * 5,
             health=[HEALTHY] + [DEGRADED] * 2 + [UNHEALTHY] * 2 + [HEALTHY] + [UNHEALTHY] * 4),
    _cluster("total_panic", _weights(9, heaviest=9, seed=12), priorities=[0] * 2 + [1] * 7,
             health=[UNHEALTHY] * 2 + [HEALTHY] + [UNHEALTHY] * 5 + [DRAINING]),
    _cluster("one_panics", _weights(9, heaviest=9, seed=13), priorities=[0] * 5 + [1] * 4,
             health=[HEALTHY] + [UNHEALTHY] * 4 + [HEALTHY] * 2 + [UNHEALTHY] * 2),
]  # fmt: skip

MAIN = ("ten", "pair", "fifty", "zones")
OTHERS = tuple(described[0] for described in DESCRIBED if described[0] not in MAIN)

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

REQUESTS: list[tuple[tuple[str, str], ...]] = [
    (("x-key", "alpha"),),
    (("x-key", "Alpha"),),
    (("x-key", "  padded \t"),),
    (("x-key", "a, b"),),
    (("x-key", "b"), ("x-key", "a"), ("X-Key", "c")),
    (("x-key", ""),),
    (("x-key", "zürich"),),
    (("cookie", 'first=1; session="quoted"; session=second'),),
    (("cookie", "session=plain"), ("x-key", "one")),
    (("cookie", "other=1"), ("cookie", "session=two"), ("x-key", "two")),
    (("cookie", "session=a=b"),),
    ((":path", "/p?user=eve&user=bob"),),
    ((":path", "/p?a=1&user=%41%20b#x"), ("x-key", "three")),
    ((":path", "/p?user="), ("cookie", "session=three")),
    ((":path", "/p?user=eve"), ("x-key", "four"), ("cookie", "session=four")),
    ((":path", "/p?xuser=1&User=2&user=3"),),
]


class World:
    """The running Envoy with the clusters it knows."""

    def __init__(self, envoy: MaglevEnvoy, clusters: Sequence[Cluster], port: int) -> None:
        self.envoy = envoy
        self._clusters = {cluster.name: cluster for cluster in clusters}
        self._port = port

    def balancer(self, name: str) -> Balancer:
        cluster = self._clusters[name]
        return build_balancer(cluster.hosts, table_size=cluster.table_size, zones=cluster.zones)

    def address(self, name: str, key: str | None) -> str:
        """Translate a picked key into the address Envoy reports; empty if nobody was picked."""
        cluster = self._clusters[name]
        by_key = dict(zip((host.key for host in cluster.hosts), cluster.addresses, strict=True))
        return "" if key is None else f"{by_key[key]}:{self._port}"


def _build(described: tuple[str, list[dict[str, object]], Sequence[str], dict[str, object]], port: int) -> Cluster:
    name, hosts, keys, options = described
    number = [entry[0] for entry in DESCRIBED].index(name) + 1
    addresses = tuple(f"127.0.{number}.{index + 1}" for index in range(len(hosts)))
    named = keys or [f"{address}:{port}" for address in addresses]
    options = dict(options)
    zones = options.pop("zone_weights", None)
    made = tuple(Host(key=key, **host) for key, host in zip(named, hosts, strict=True))  # type: ignore[arg-type] # described above, checked at birth
    return Cluster(name=name, hosts=made, addresses=addresses, zones=zones, **options)  # type: ignore[arg-type] # the same


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "0.0.0.0", 0)  # noqa: S104 - all of 127.0.0.0/8 is loopback
    port = server.sockets[0].getsockname()[1]
    clusters = [_build(described, port) for described in DESCRIBED]
    routes = [Route(name=cluster.name, split=((cluster.name, 1),)) for cluster in clusters]
    routes += [
        Route(name=f"by-{name}", split=(("ten", 1),), policies=policies)
        for name, policies in POLICIES.items()
    ]
    routes.append(Route(name="split", split=(("pair", CANARY_PARTS), ("ten", TOTAL_PARTS - CANARY_PARTS))))
    routes.append(Route(name="retry", split=(("three", 1),), retries=5))
    async with server, running_envoy(
        clusters, routes, port=port, folder=tmp_path_factory.mktemp("envoy")
    ) as envoy:
        yield World(envoy, clusters, port)


async def _ask(world: World, route: str, keys: Sequence[str], *, path: str = "/") -> list[Picked]:
    requests = [((":authority", route), (":path", path), ("x-key", key)) for key in keys]
    return await world.envoy.send(requests)


def _hash(key: str) -> int:
    found = request_hash((HEADER,), Request(headers=(("x-key", key),)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "count"), [(name, 5000) for name in MAIN] + [(name, 600) for name in OTHERS]
)
async def test_every_key_goes_where_the_model_says(world: World, name: str, count: int) -> None:
    balancer = world.balancer(name)
    keys = [f"{name}-session-{index}" for index in range(count)]

    picked = await _ask(world, name, keys)

    expected = [world.address(name, balancer.pick(_hash(key))) for key in keys]
    assert [one.host for one in picked] == expected
    assert {one.status for one in picked} <= ({503} if set(expected) == {""} else {200, 503})


@pytest.mark.parametrize("name", ["ten", "pair", "three", "fifty", "zones", "hostnames", "prime", "crowded", "sick"])
async def test_slots_per_host_are_what_envoy_reports(world: World, name: str) -> None:
    table = world.balancer(name).tables[0]
    assert table is not None
    slots = table.slots()

    assert world.envoy.gauges(name) == (int(slots.min()), int(slots.max()))


@pytest.mark.parametrize("name", list(POLICIES))
async def test_requests_hash_as_in_envoy(world: World, name: str) -> None:
    policies = POLICIES[name]
    balancer = world.balancer("ten")
    lines = [((":authority", f"by-{name}"), *_with_path(request)) for request in REQUESTS]

    picked = await world.envoy.send(lines, source="127.0.0.77")

    hashes = [request_hash(policies, Request(headers=line, source_ip="127.0.0.77")) for line in lines]
    assert any(found is not None for found in hashes)
    for line, found, one in zip(lines, hashes, picked, strict=True):
        if found is not None:
            assert one.host == world.address("ten", balancer.pick(found)), line


def _with_path(request: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(request) if any(name == ":path" for name, _ in request) else ((":path", "/"), *request)


async def test_the_canary_split_goes_by_the_hash(world: World) -> None:
    split = (ClusterShare("pair", CANARY_PARTS), ClusterShare("ten", TOTAL_PARTS - CANARY_PARTS))
    keys = [f"user-{index}" for index in range(5000)]

    picked = await _ask(world, "split", keys)

    expected = [canary_cluster(_hash(key), split) for key in keys]
    assert [one.cluster for one in picked] == expected
    balancers = {name: world.balancer(name) for name in ("pair", "ten")}
    assert [one.host for one in picked] == [
        world.address(name, balancers[name].pick(_hash(key))) for key, name in zip(keys, expected, strict=True)
    ]
    assert 0.08 < np.mean([name == "pair" for name in expected]) < 0.12


async def test_a_retry_goes_to_the_host_of_the_next_attempts(world: World) -> None:
    balancer = world.balancer("three")
    keys = [f"retry-{index}" for index in range(400)]

    picked = await _ask(world, "retry", keys, path="/fail")

    def last_host(key: str) -> str | None:
        tried = balancer.pick(_hash(key))
        attempts = [balancer.pick(_hash(key), attempt=attempt) for attempt in range(6)]
        return next((host for host in attempts if host != tried), attempts[-1])

    assert [one.host for one in picked] == [world.address("three", last_host(key)) for key in keys]
