"""The control plane ends, comes back, or starts without its sources: Envoy and its users notice nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controlplane.sim.load import LoadGenerator
from tests.support.stillness import applied, settle
from tests.support.system import System, SystemOptions, running_system, strategy_document

pytestmark = [pytest.mark.envoy]

AWAY_SECONDS = 2.0
GRACE_SECONDS = 5.0
FILES = SystemOptions(
    documents="directory",
    topology="file",
    signals="scrape",
    strategy=None,
    settings={"loop": {"interval_seconds": 0.5, "shutdown_grace_seconds": GRACE_SECONDS}},
)


def unequal(system: System) -> dict[str, Any]:
    """Fix the weights: the first server gets three times what the others get."""
    parameters = {"weights": {system.names[0]: 3}, "default": 1}
    return strategy_document(law="static", parameters=parameters)


async def begin(system: System) -> dict[str, int]:
    """Put unequal weights in force, and wait until Envoy has them and rests."""
    await system.write_strategy(unequal(system))
    await system.until_served()

    async def is_weighted() -> bool:
        weights = await system.weights()
        return weights[system.names[0]] > 2.5 * weights[system.names[1]]

    await system.until(is_weighted)
    return await settle(system)


@contextlib.asynccontextmanager
async def load(system: System) -> AsyncIterator[LoadGenerator]:
    """Send conversations until the block ends, and wait for the answers under way."""
    generator, stop = system.load(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(generator.run(stop=stop))
        yield generator
        stop.set()


async def is_ready(system: System) -> bool:
    """Tell if Trimtab says that it serves; a closed port is a no."""
    try:
        async with system.session.get(f"{system.admin_url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def versions(system: System) -> dict[str, str]:
    found: dict[str, str] = (await system.get("/v1/status"))["versions"]
    return found


@pytest.mark.fault("R1")
@pytest.mark.fault("R3")
@pytest.mark.fault("R28")
async def test_restarts_of_the_control_plane_reach_neither_envoy_nor_a_user(tmp_path: Path) -> None:
    # given a system under load, at rest with unequal weights
    async with running_system(tmp_path, FILES) as system:
        before = await begin(system)
        async with load(system) as generator:
            weights, known = await system.weights(), await versions(system)

            # when Trimtab is killed, and stays away
            await system.trimtab.kill()
            assert not await is_ready(system)
            await asyncio.sleep(AWAY_SECONDS)

            # then Envoy goes on with what it has
            assert await system.weights() == weights
            assert await applied(system) == before

            # when Trimtab comes back with its state
            await system.trimtab.start()
            after = await settle(system)

            # then its versions are what they were, and Envoy was sent nothing
            assert await versions(system) == known
            assert after == before
            assert await system.weights() == weights

            # when it is asked to end
            began_at = asyncio.get_running_loop().time()
            code = await system.trimtab.stop()

            # then it does so in order, within its grace, and Envoy still has everything
            assert code == 0
            assert asyncio.get_running_loop().time() - began_at < GRACE_SECONDS + 1
            assert not await is_ready(system)
            assert await applied(system) == before
    # and no user noticed any of it
    assert len(generator.answers) > 100
    assert [answer for answer in generator.answers if not answer.is_good] == []


@pytest.mark.consul
@pytest.mark.fault("R10")
async def test_a_start_without_consul_serves_the_checkpoint(tmp_path: Path) -> None:
    # given documents and endpoints in Consul, at rest
    options = replace(FILES, documents="consul", topology="consul")
    async with running_system(tmp_path, options) as system:
        before = await begin(system)
        weights, known = await system.weights(), await versions(system)

        # when Consul dies, and Trimtab after it comes back alone
        await system.consul.kill()
        await system.trimtab.kill()
        await system.trimtab.start()

        # then it serves what it knew, and says from where
        await system.until(lambda: is_ready(system))
        assert await settle(system) == before
        assert await versions(system) == known
        assert await system.weights() == weights
        status = await system.get("/v1/status")
        assert status["started_from_checkpoint"]
        sources = {source["name"]: source for source in status["sources"]}
        assert sources["documents"]["consecutive_failures"] > 0

        # and an Envoy that starts now gets it too
        await system.envoy.kill()
        await system.envoy.start()
        await system.until_served()
        assert await system.weights() == weights
