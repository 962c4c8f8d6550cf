"""A real Envoy over ADS, in both variants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from controlplane.config import XdsSettings
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, Resource, Snapshot
from controlplane.xds.server import XdsServer
from controlplane.xds.server.messages import Variant
from tests.support.xds_envoy import running_envoy
from tests.support.xds_envoy_resources import cluster, endpoints, listener, route
from tests.support.xds_resources import snapshot

pytestmark = pytest.mark.envoy

BOTH = pytest.mark.parametrize("variant", list(Variant))


def world(
    *,
    weight: int = 1,
    to: str = "a",
    clusters: tuple[Resource, ...] = (),
) -> Snapshot:
    """One listener, one route, the cluster it points to; port 1 answers nobody."""
    clusters = clusters or (cluster(to),)
    return snapshot(
        {
            CLUSTER: clusters,
            ENDPOINT: [endpoints(each.name, 1, weight=weight) for each in clusters],
            LISTENER: [listener("l", "r")],
            ROUTE: [route("r", to)],
        }
    )


def server_on(port: int = 0, registry: CollectorRegistry | None = None) -> XdsServer:
    return XdsServer(
        settings=XdsSettings(port=port), registry=registry or CollectorRegistry(), clock=time.monotonic
    )


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def server(registry: CollectorRegistry) -> AsyncIterator[XdsServer]:
    server = server_on(registry=registry)
    yield server
    await server.stop(1)


async def are_synced(server: XdsServer) -> bool:
    """Tell whether the one Envoy has asked for all four types and taken them."""
    types = [status for node in server.fleet().nodes for status in node.types]
    return len(types) == 4 and all(status.state == "SYNCED" for status in types)


@BOTH
async def test_accepts_updates_moves_and_refuses(
    variant: Variant, server: XdsServer, registry: CollectorRegistry, tmp_path: Path
) -> None:
    port = await server.start()
    async with running_envoy(tmp_path, port, variant) as envoy:
        # Cold start: nothing is answered, so Envoy waits.
        await envoy.until(lambda: envoy.stat("cluster_manager.cds.update_attempt"), 1)
        assert await envoy.stat("cluster_manager.cds.update_success") == 0

        server.publish(world())
        await envoy.until(lambda: envoy.stat("http.l.rds.r.update_success"), 1)
        await envoy.until(lambda: are_synced(server))
        (node,) = server.fleet().nodes
        assert (node.node_id, node.cluster, node.variant) == ("envoy-1", "test", variant.value)
        assert node.user_agent.startswith("envoy 1.")

        # A weight change touches EDS only.
        server.publish(world(weight=7))
        await envoy.until(lambda: envoy.weights("a"), {"1": 7})
        assert await envoy.stat("cluster_manager.cds.update_success") == 1
        assert await envoy.stat("listener_manager.lds.update_success") == 1

        # A changed cluster gets its endpoints again and does not hang in warming.
        server.publish(world(weight=7, clusters=(cluster("a", timeout="2s"),)))
        await envoy.until(lambda: envoy.stat("cluster_manager.cluster_modified"), 1)
        await envoy.until(lambda: envoy.stat("cluster_manager.warming_clusters"), 0)
        await envoy.until(lambda: are_synced(server))

        # The route moves to a new cluster; the old one goes last.
        server.publish(world(to="b"))
        await envoy.until(lambda: envoy.stat("cluster_manager.cluster_removed"), 1)
        await envoy.until(lambda: envoy.stat("http.l.rds.r.update_success"), 2)
        await envoy.until(lambda: envoy.weights("b"), {"1": 1})
        await envoy.until(lambda: are_synced(server))

        # Refused once, told once, and the last good one stays.
        rejected_before = await envoy.stat("cluster_manager.cds.update_rejected")
        broken = world(to="b", clusters=(cluster("b", table_size=100),))
        server.publish(broken)

        async def clusters_state() -> str:
            return server.fleet().nodes[0].types[0].state

        await envoy.until(clusters_state, "NACKED")
        status = server.fleet().nodes[0].types[0]
        assert status.nacked_version == broken.sets[CLUSTER].version
        assert "prime" in status.nack_message
        await asyncio.sleep(0.5)  # a loop would show by now
        assert await envoy.stat("cluster_manager.cds.update_rejected") == rejected_before + 1
        assert registry.get_sample_value("trimtab_xds_nacks_total", {"type": "cds"}) == 1

        # A good version ends it.
        server.publish(world(to="b", weight=3))
        await envoy.until(lambda: envoy.weights("b"), {"1": 3})
        await envoy.until(lambda: are_synced(server))


@pytest.mark.fault("R1")
@BOTH
async def test_restart_with_the_same_content_changes_nothing(variant: Variant, tmp_path: Path) -> None:
    first = server_on()
    port = await first.start()
    async with running_envoy(tmp_path, port, variant) as envoy:
        first.publish(world(weight=5))
        await envoy.until(lambda: envoy.stat("http.l.rds.r.update_success"), 1)
        await envoy.until(lambda: are_synced(first))
        counters = (
            "cluster_manager.cds.update_success",
            "cluster.a.update_success",
            "listener_manager.lds.update_success",
            "http.l.rds.r.update_success",
        )
        before = [await envoy.stat(name) for name in counters]

        await first.stop(1)
        await envoy.until(lambda: envoy.stat("control_plane.connected_state"), 0)
        second = server_on(port)
        await second.start()
        second.publish(world(weight=5))

        try:
            await envoy.until(lambda: envoy.stat("control_plane.connected_state"), 1)
            await envoy.until(lambda: are_synced(second))
            assert await envoy.stat("cluster_manager.cluster_modified") == 0
            assert await envoy.stat("listener_manager.listener_modified") == 0
            assert await envoy.stat("http.l.rds.r.config_reload") == 1
            if variant is Variant.DELTA:
                assert [await envoy.stat(name) for name in counters] == before
            # And the new one is really in charge.
            second.publish(world(weight=9))
            await envoy.until(lambda: envoy.weights("a"), {"1": 9})
        finally:
            await second.stop(1)
