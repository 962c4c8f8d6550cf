"""The real Envoy and `core.maglev` must agree on every single request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import numpy as np
import pytest
import pytest_asyncio

from controlplane.core.maglev import (
    Balancer,
    Host,
    Request,
    build_balancer,
    build_table,
    canary_cluster,
    request_hash,
)
from controlplane.model.plan import ClusterShare
from controlplane.model.rollout import TOTAL_PARTS
from tests.support.maglev_cases import CASES, HEADER, MAIN, POLICIES, REQUESTS
from tests.support.maglev_envoy import Cluster, MaglevEnvoy, Picked, Route, Upstream, running_envoy

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

CANARY_PARTS = 10_000
CASE_COUNTS = [(case.name, 5000 if case.name in MAIN else 600) for case in CASES]


class World:
    """The running Envoy with the clusters it knows."""

    def __init__(self, envoy: MaglevEnvoy, clusters: Sequence[Cluster], port: int) -> None:
        self.envoy = envoy
        self._clusters = {cluster.name: cluster for cluster in clusters}
        self._port = port

    def cluster(self, name: str) -> Cluster:
        return self._clusters[name]

    def balancer(self, name: str) -> Balancer:
        cluster = self.cluster(name)
        return build_balancer(cluster.hosts, table_size=cluster.table_size, zones=cluster.zones)

    def address(self, name: str, key: str | None) -> str:
        """Translate a picked key into the address Envoy reports; empty if nobody was picked."""
        cluster = self.cluster(name)
        by_key = dict(zip((host.key for host in cluster.hosts), cluster.addresses, strict=True))
        return "" if key is None else f"{by_key[key]}:{self._port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "0.0.0.0", 0)  # noqa: S104 - all of 127.0.0.0/8 is loopback
    port = server.sockets[0].getsockname()[1]
    clusters = [case.cluster(number, port) for number, case in enumerate(CASES, 1)]
    routes = [Route(name=cluster.name, split=((cluster.name, 1),)) for cluster in clusters]
    routes += [
        Route(name=f"by-{name}", split=(("ten", 1),), policies=policies)
        for name, policies in POLICIES.items()
    ]
    routes.append(Route(name="split", split=(("pair", CANARY_PARTS), ("ten", TOTAL_PARTS - CANARY_PARTS))))
    routes.append(Route(name="retry", split=(("three", 1),), retries=5))
    async with (
        server,
        running_envoy(clusters, routes, port=port, folder=tmp_path_factory.mktemp("envoy")) as envoy,
    ):
        yield World(envoy, clusters, port)


async def _ask(world: World, route: str, keys: Sequence[str], *, path: str = "/") -> list[Picked]:
    requests = [((":authority", route), (":path", path), ("x-key", key)) for key in keys]
    return await world.envoy.send(requests)


def _hash(key: str) -> int:
    found = request_hash((HEADER,), Request(headers=(("x-key", key),)))
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "count"), CASE_COUNTS)
async def test_every_key_goes_where_the_model_says(world: World, name: str, count: int) -> None:
    balancer = world.balancer(name)
    keys = [f"{name}-session-{index}" for index in range(count)]

    picked = await _ask(world, name, keys)

    expected = [world.address(name, balancer.pick(_hash(key))) for key in keys]
    assert [one.host for one in picked] == expected
    assert {one.status for one in picked} <= ({503} if set(expected) == {""} else {200, 503})


@pytest.mark.parametrize(
    "name", ["ten", "pair", "three", "fifty", "zones", "hostnames", "prime", "crowded", "sick"]
)
async def test_slots_per_host_are_what_envoy_reports(world: World, name: str) -> None:
    table = world.balancer(name).tables[0]
    assert table is not None
    slots = table.slots()

    assert world.envoy.gauges(name) == (int(slots.min()), int(slots.max()))


@pytest.mark.parametrize("name", ["last_bit_flat", "last_bit_zones"])
async def test_weights_are_rounded_in_envoys_order_of_operations(world: World, name: str) -> None:
    # given the few slots that another, algebraically equal order would give to other hosts
    hosts, zones = world.cluster(name).hosts, world.cluster(name).zones or {"": 1}
    table = world.balancer(name).tables[0]
    assert table is not None
    other = build_table(
        table.keys, np.array([_rounded_otherwise(host, hosts, zones) for host in hosts]), 65_537
    )
    disputed = set(np.flatnonzero(table.owners != other.owners).tolist())
    assert disputed

    # when keys of exactly those slots are asked for
    candidates = (f"bit-{index}" for index in range(200_000))
    keys = [key for key in candidates if _hash(key) % 65_537 in disputed]
    picked = await _ask(world, name, keys)

    # then Envoy agrees with ours, every time
    assert len(keys) > 10
    assert [one.host for one in picked] == [world.address(name, table.owner(_hash(key))) for key in keys]


def _rounded_otherwise(host: Host, hosts: Sequence[Host], zones: Mapping[str, int]) -> float:
    total = sum(other.weight for other in hosts if other.zone == host.zone)
    if len(zones) == 1:
        return host.weight * (1 / total)
    return host.weight / total * (zones[host.zone] / sum(zones.values()))


@pytest.mark.parametrize("name", sorted(POLICIES))
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
        world.address(name, balancers[name].pick(_hash(key)))
        for key, name in zip(keys, expected, strict=True)
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
