"""Endpoints from a real Consul's catalog."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from controlplane.model.documents import TopologyOffer
from controlplane.model.topology import Endpoint, Health, Topology
from controlplane.sources.consul_catalog import ConsulTopology
from controlplane.sources.consul_client import ConsulClient
from tests.support.consul_server import ConsulServer, consul_server
from tests.support.consul_sources import RETRY, consul_client, make_fuse

pytestmark = pytest.mark.consul


@pytest.fixture
async def consul() -> AsyncIterator[ConsulServer]:
    async with consul_server() as server:
        yield server


@pytest.fixture
async def client(consul: ConsulServer) -> AsyncIterator[ConsulClient]:
    async with consul_client(consul.address) as made:
        yield made


def make_topology(client: ConsulClient) -> ConsulTopology:
    return ConsulTopology(client=client, fuse=make_fuse("catalog"), retry=RETRY)


async def soon(offers: AsyncIterator[TopologyOffer]) -> TopologyOffer:
    async with asyncio.timeout(10):
        return await anext(offers)


def endpoints(offer: TopologyOffer, service: str) -> dict[str, Endpoint]:
    found = offer.topology.get(service)
    assert found is not None
    return {endpoint.id: endpoint for endpoint in found.endpoints}


async def test_meta_tags_and_health_become_an_endpoint(consul: ConsulServer, client: ConsulClient) -> None:
    await consul.register(
        "chat",
        "10.0.0.1",
        8000,
        meta={"zone": "a", "region": "eu", "version": "2", "gpu": "h100", "hash_key": "k1", "role": "x"},
        tags=("warm", "tenant=acme"),
    )
    await consul.register("chat", "10.0.0.2", 8000, status="critical")
    await consul.register("chat", "10.0.0.3", 8000, status="warning")
    await consul.register("chat", "", 8001)
    async with contextlib.aclosing(make_topology(client).watch(frozenset({"chat", "none"}))) as offers:
        offer = await soon(offers)
    assert not offer.topology.problems
    assert endpoints(offer, "none") == {}
    found = endpoints(offer, "chat")
    assert found["10.0.0.1:8000"] == Endpoint(
        address="10.0.0.1",
        port=8000,
        zone="a",
        region="eu",
        version="2",
        gpu="h100",
        hash_key="k1",
        labels=(("role", "x"), ("tenant", "acme"), ("warm", "true")),
    )
    assert found["10.0.0.2:8000"].health is Health.UNHEALTHY
    assert found["10.0.0.3:8000"].health is Health.UNHEALTHY
    assert found["127.0.0.1:8001"].health is Health.HEALTHY


async def test_changes_are_seen_and_the_set_can_be_another(
    consul: ConsulServer, client: ConsulClient
) -> None:
    identity = await consul.register("chat", "10.0.0.1", 8000)
    source = make_topology(client)
    async with contextlib.aclosing(source.watch(frozenset({"chat"}))) as offers:
        assert set(endpoints(await soon(offers), "chat")) == {"10.0.0.1:8000"}
        await consul.register("chat", "10.0.0.2", 8000)
        assert set(endpoints(await soon(offers), "chat")) == {"10.0.0.1:8000", "10.0.0.2:8000"}
        await consul.api("PUT", f"agent/service/maintenance/{identity}?enable=true")
        assert endpoints(await soon(offers), "chat")["10.0.0.1:8000"].health is Health.DRAINING
        await consul.deregister(identity)
        offer = await soon(offers)
        assert set(endpoints(offer, "chat")) == {"10.0.0.2:8000"}
        assert not offer.is_reset
    await consul.register("embed", "10.0.0.9", 8000)
    async with contextlib.aclosing(source.watch(frozenset({"chat", "embed"}))) as offers:
        offer = await soon(offers)
        assert [service.service for service in offer.topology.services] == ["chat", "embed"]


async def test_a_bad_instance_is_a_problem_and_its_neighbours_stay(
    consul: ConsulServer, client: ConsulClient
) -> None:
    await consul.register("chat", "gpu-1.example", 8000)
    await consul.register("chat", "10.0.0.1", 8000)
    await consul.register("chat", "10.0.0.2", 8000, meta={"hash_key": "10.0.0.1:8000"})
    async with contextlib.aclosing(make_topology(client).watch(frozenset({"chat", "a/b"}))) as offers:
        offer = await soon(offers)
    assert set(endpoints(offer, "chat")) == {"10.0.0.1:8000"}
    problems = "\n".join(offer.topology.problems)
    assert "`gpu-1.example` is not an IP address" in problems
    assert "10.0.0.2:8000 has the hash key of 10.0.0.1:8000" in problems
    assert "a/b: is not a name that Consul can have" in problems
    assert len(offer.topology.problems) == 3


async def test_no_services_at_all_is_an_offer_too(client: ConsulClient) -> None:
    async with contextlib.aclosing(make_topology(client).watch(frozenset())) as offers:
        assert await soon(offers) == TopologyOffer(topology=Topology())


@pytest.mark.fault("R11")
async def test_a_catalog_that_restarts_empty_is_a_reset(consul: ConsulServer, client: ConsulClient) -> None:
    for service in ("chat", "embed"):
        await consul.register(service, "10.0.0.1", 8000)
    async with contextlib.aclosing(make_topology(client).watch(frozenset({"chat", "embed"}))) as offers:
        assert set(endpoints(await soon(offers), "chat")) == {"10.0.0.1:8000"}
        await consul.kill()
        await consul.start()
        offer = await soon(offers)
        while endpoints(offer, "chat") or endpoints(offer, "embed"):
            assert offer.is_reset
            offer = await soon(offers)
        assert offer.is_reset
        await consul.register("chat", "10.0.0.1", 8000)
        offer = await soon(offers)
        assert set(endpoints(offer, "chat")) == {"10.0.0.1:8000"}
        assert offer.is_reset, "embed is still not back"
        await consul.register("embed", "10.0.0.1", 8000)
        assert not (await soon(offers)).is_reset
