"""One service's trouble never stops the others from being published."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from controlplane.core.plan import ServicePlan
from controlplane.model.fleet import FleetStatus
from controlplane.model.plan import ListenerPlan
from controlplane.model.resources import CLUSTER, Snapshot
from controlplane.model.strategy import Routing, Strategy
from controlplane.model.topology import Endpoint, ServiceTopology
from controlplane.model.weights import WeightVector
from controlplane.runtime.publish import Publisher
from controlplane.xds.build import SnapshotBuilder


class Recorder:
    """A server that remembers what was published."""

    def __init__(self) -> None:
        self.published: list[Snapshot] = []

    def publish(self, snapshot: Snapshot) -> None:
        self.published.append(snapshot)

    def fleet(self) -> FleetStatus:
        return FleetStatus(0.0, ())


def publisher(server: Recorder, *, max_resource_bytes: int = 1_000_000) -> Publisher:
    return Publisher(
        builder=SnapshotBuilder(max_resource_bytes=max_resource_bytes),
        server=server,
        listener=ListenerPlan("trimtab", "127.0.0.1", 10_000),
        registry=CollectorRegistry(),
    )


def plan(service: str, weight: int = 1, *, domain: str = "", endpoints: int = 2) -> ServicePlan:
    topology = ServiceTopology(
        service, tuple(Endpoint(address="10.0.0.1", port=port) for port in range(100, 100 + endpoints))
    )
    return ServicePlan(
        strategy=Strategy(schema=1, version="1.0.0", routing=Routing(domains=(domain or service,))),
        topology=topology,
        weights=WeightVector(topology.ids, (weight,) + (1,) * (endpoints - 1)),
    )


def test_what_is_published_is_published_once() -> None:
    server = Recorder()
    found = publisher(server)
    assert found.publish({"a": plan("a")})
    assert not found.publish({"a": plan("a")})
    assert found.publish({"a": plan("a", 2)})
    assert len(server.published) == 2


def test_a_plan_that_does_not_build_keeps_its_service_and_lets_the_others_go_on() -> None:
    server = Recorder()
    found = publisher(server)
    found.publish({"a": plan("a"), "b": plan("b")})

    # `b` wants a domain that `a` has: the plan as a whole does not hold together.
    assert found.publish({"a": plan("a", 3), "b": plan("b", 3, domain="a")})

    assert list(found.failed) == ["b"]
    expected = publisher(Recorder())
    expected.publish({"a": plan("a", 3), "b": plan("b")})
    assert expected.snapshot is not None
    assert server.published[-1].version == expected.snapshot.version


def test_an_oversized_service_is_left_out_and_the_others_are_served() -> None:
    server = Recorder()
    found = publisher(server, max_resource_bytes=2_000)
    assert found.publish({"big": plan("big", endpoints=300), "small": plan("small")})
    assert list(found.failed) == ["big"]
    clusters = server.published[-1].get(CLUSTER)
    assert clusters is not None
    assert list(clusters.resources) == ["small"]


def test_a_failure_is_forgotten_once_its_plan_builds() -> None:
    found = publisher(Recorder())
    found.publish({"a": plan("a"), "b": plan("b", domain="a")})
    assert list(found.failed) == ["b"]
    found.publish({"a": plan("a"), "b": plan("b")})
    assert found.failed == {}


def test_nothing_is_published_when_nothing_builds() -> None:
    server = Recorder()
    found = publisher(server, max_resource_bytes=10)
    assert not found.publish({"a": plan("a")})
    assert server.published == []
    assert found.snapshot is None
