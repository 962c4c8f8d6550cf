"""Prometheus goes away: weights hold, then fade to equal, and follow the signals again when it is back."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.system import System, SystemOptions, running_system, strategy_document

pytestmark = [pytest.mark.envoy, pytest.mark.prometheus]

HOLD_SECONDS, FADE_SECONDS = 7.0, 4.0
STALE_SECONDS = 3.0
EVENNESS = 1.05
"""Heaviest over lightest weight that counts as equal."""
POLL_SECONDS = 0.2


def document() -> dict[str, Any]:
    found = strategy_document(law="capacity")
    found["signals"] |= {"stale_after_seconds": STALE_SECONDS}
    found["guards"] |= {"hold_seconds": HOLD_SECONDS, "fade_seconds": FADE_SECONDS}
    return found


OPTIONS = SystemOptions(
    documents="directory",
    topology="file",
    signals="prometheus",
    speeds=(0.5, 0.5, 2.0, 2.0),
    strategy=document(),
    settings={
        "fuse": {
            "degraded_after_failures": 3,
            "degraded_after_seconds": 2,
            "retry_min_seconds": 0.2,
            "retry_max_seconds": 1.0,
        },
        "prometheus": {"timeout_seconds": 1},
    },
)


def spread(weights: Mapping[str, int]) -> float:
    """Give heaviest over lightest."""
    return max(weights.values()) / min(weights.values())


async def metric(system: System, name: str) -> dict[str, float]:
    """Read one of Trimtab's own metrics, by the value of its last label."""
    async with system.session.get(f"{system.admin_url}/metrics") as answer:
        families = list(text_string_to_metric_families(await answer.text()))
    return {
        sample.labels.get("source") or sample.labels.get("endpoint", ""): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


async def is_degraded(system: System) -> bool:
    """Tell if the signals count as degraded, in the API and in the metrics."""
    sources = {source["name"]: source for source in (await system.get("/v1/status"))["sources"]}
    gauge = (await metric(system, "trimtab_source_degraded"))["signals"]
    return sources["signals"]["state"] == "degraded" and gauge == 1.0


@contextlib.asynccontextmanager
async def watched(system: System) -> AsyncIterator[list[tuple[float, dict[str, int]]]]:
    """Note Envoy's weights, with their times, until the block ends."""
    seen: list[tuple[float, dict[str, int]]] = []
    loop = asyncio.get_running_loop()

    async def watch() -> None:
        while True:
            seen.append((loop.time(), await system.weights()))
            await asyncio.sleep(POLL_SECONDS)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        yield seen
        watching.cancel()


@contextlib.asynccontextmanager
async def load(system: System) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(system.load().run(stop=stop))
        yield
        stop.set()


async def has_learned(system: System) -> bool:
    """Tell if the fast servers have clearly more weight than the slow ones."""
    weights = await system.weights()
    slow, fast = system.names[:2], system.names[2:]
    return min(weights[name] for name in fast) > 1.5 * max(weights[name] for name in slow)


@pytest.mark.fault("R4")
async def test_weights_hold_then_fade_while_prometheus_is_away(tmp_path: Path) -> None:
    async with running_system(tmp_path, OPTIONS) as system:
        await system.until_served()
        async with load(system), watched(system) as seen:
            # given weights that follow the servers' capacity
            await system.until(lambda: has_learned(system))
            assert not await is_degraded(system)

            # when Prometheus dies
            loop = asyncio.get_running_loop()
            await system.prometheus.kill()
            died_at = loop.time()

            # then people see it soon, and the weights do not move until the hold is over
            await system.until(lambda: is_degraded(system), seconds=10)
            degraded_after = loop.time() - died_at
            assert degraded_after < HOLD_SECONDS
            await asyncio.sleep(max(0.0, died_at + HOLD_SECONDS - 1 - loop.time()))
            held = [weights for at, weights in seen if at > died_at + STALE_SECONDS + 1]
            assert held
            assert all(weights == held[0] for weights in held)
            assert spread(held[0]) > 1.5

            # then they fade to equal, through what lies between, and no host is left out
            async def is_even() -> bool:
                return spread(await system.weights()) < EVENNESS

            await system.until(is_even, seconds=2 * (HOLD_SECONDS + FADE_SECONDS))
            assert loop.time() - died_at > HOLD_SECONDS
            between = {spread(weights) for at, weights in seen if at > died_at + HOLD_SECONDS}
            assert len([each for each in between if EVENNESS < each < spread(held[0]) * 0.95]) >= 2

            # when it is back
            await system.prometheus.start()

            # then all is as before
            await system.until(lambda: has_learned(system))
            assert not await is_degraded(system)
        # and no weight was ever anything but a weight
        assert all(weight >= 1 for _, weights in seen for weight in weights.values())
        ratios = await metric(system, "trimtab_endpoint_weight_ratio")
        assert set(ratios) == set(system.names)
        assert all(math.isfinite(ratio) for ratio in ratios.values())
