"""From a slow model server to Envoy's weights and the share of requests, through every real part."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controlplane.sim.engine import Fault
from tests.support.system import SERVICE, System, SystemOptions, running_system, strategy_document

pytestmark = [pytest.mark.envoy, pytest.mark.consul, pytest.mark.prometheus]

SLOW_FACTOR = 5.0
WINDOW_SECONDS = 3.0


async def test_a_slow_server_loses_weight_and_requests_and_gets_both_back(tmp_path: Path) -> None:
    options = SystemOptions(strategy=strategy_document(law="capacity"))
    async with running_system(tmp_path, options) as system:
        await system.until_served()
        await system.prometheus.wait_for("vllm:num_requests_running", rows=len(system.names))
        slow = system.names[0]
        load = system.load(requests_per_second=30.0)
        driving = asyncio.create_task(load.run())
        try:
            await system.until(lambda: is_about(system, slow, 0.15, 0.4))
            before = await measured_share(system, slow)

            system.fleet.set_fault(slow, Fault(slow_factor=SLOW_FACTOR))
            await system.until(lambda: is_about(system, slow, 0.0, 0.13))
            during = await measured_share(system, slow)

            system.fleet.set_fault(slow, Fault())
            await system.until(lambda: is_about(system, slow, 0.16, 0.4))
            after = await measured_share(system, slow)
        finally:
            driving.cancel()
            await asyncio.wait({driving})

        assert during < 0.6 * before
        assert after > 1.5 * during
        assert load.report().errors == 0


async def is_about(system: System, endpoint: str, least: float, most: float) -> bool:
    """Tell if Envoy gives the endpoint such a share, by its cluster page and by its assignment."""
    shares = []
    for weights in (await system.weights(), await system.assigned()):
        total = sum(weights.values())
        shares.append(weights.get(endpoint, 0) / total if total else -1.0)
    return all(least <= share <= most for share in shares)


async def measured_share(system: System, endpoint: str) -> float:
    """Measure the endpoint's share of the requests that Envoy sends from now on, by Envoy's own count."""
    before = await system.envoy_admin.hosts(SERVICE)
    await asyncio.sleep(WINDOW_SECONDS)
    after = await system.envoy_admin.hosts(SERVICE)
    sent = {name: after[name].requests - before[name].requests for name in after}
    return sent[endpoint] / sum(sent.values())
