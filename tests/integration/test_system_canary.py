"""A canary's share of conversations: exact, sticky, predictable, and gone at once when aborted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from controlplane.core.maglev.pick import canary_cluster
from controlplane.core.maglev.request_hash import Request, request_hash
from controlplane.model.plan import ClusterShare
from controlplane.model.rollout import TOTAL_PARTS
from controlplane.model.strategy import HashPolicy
from tests.support.system import SERVICE, System, SystemOptions, running_system

pytestmark = [pytest.mark.envoy]

OPTIONS = SystemOptions(
    documents="directory",
    topology="file",
    signals="scrape",
    speeds=(1.0,) * 4,
    versions=("v1", "v1", "v1", "v2"),
)
CANARY = f"{SERVICE}.canary"
HEADER = "x-session-id"
SESSIONS = tuple(f"conversation-{number}" for number in range(2_000))
ROUNDS = 3
WORKERS = 32


def canary_document(*, first_gate: bool = True, desired: str = "run") -> dict[str, Any]:
    """Hold at 10 % until its gate is lifted, then at 20 %."""
    return {
        "schema": 1,
        "canary": {"version": "v2"},
        "steps": [
            {"weight_percent": 10, "hold_seconds": 0, "gate": first_gate},
            {"weight_percent": 20, "hold_seconds": 0, "gate": True},
        ],
        "analysis": {
            "metrics": [{"signal": "error_ratio", "max_value": 0.5}],
            "interval_seconds": 0.5,
            "min_requests": 1,
        },
        "desired": desired,
    }


def predicted(key: str, percent: int) -> str:
    """Tell the version that Trimtab's own model of Envoy sends a conversation to."""
    parts = round(TOTAL_PARTS * percent / 100)
    hashed = request_hash([HashPolicy(kind="header", name=HEADER)], Request(headers=((HEADER, key),)))
    assert hashed is not None
    split = (ClusterShare(CANARY, parts), ClusterShare(SERVICE, TOTAL_PARTS - parts))
    return "v2" if canary_cluster(hashed, split) == CANARY else "v1"


async def ask(system: System, keys: tuple[str, ...]) -> dict[str, str]:
    """Send one cheap request for each conversation; gives the version that answered each."""
    found: dict[str, str] = {}
    left = iter(keys)

    async def work() -> None:
        for key in left:
            async with system.session.get(f"{system.envoy_url}/v1/models", headers={HEADER: key}) as answer:
                assert answer.status == 200
                found[key] = answer.headers["x-version"]

    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(work())
    return found


async def is_canary_at(system: System, percent: int) -> bool:
    found = await system.envoy_admin.canary_percent(SERVICE)
    return found is not None and abs(found - percent) < 0.01


async def until_canary_at(system: System, percent: int) -> None:
    await system.until(lambda: is_canary_at(system, percent))


async def until_canary_goes_to(system: System, percent: int) -> None:
    """Wait under a load of short answers from both versions: that is what verdicts are made of."""
    by_version = {version: [k for k in SESSIONS if predicted(k, 10) == version] for version in ("v1", "v2")}
    keys = [key for found in by_version.values() for key in found[:5]]

    async def is_there() -> bool:
        for key in keys:
            body = {"prompt": "ahoy", "max_tokens": 1}
            url = f"{system.envoy_url}/v1/completions"
            async with system.session.post(url, json=body, headers={HEADER: key}) as answer:
                assert answer.status == 200
        return await is_canary_at(system, percent)

    await system.until(is_there)


async def requests_at(system: System, cluster: str) -> int:
    return sum(host.requests for host in (await system.envoy_admin.hosts(cluster)).values())


async def test_a_canary_takes_the_conversations_that_were_predicted_and_no_others(tmp_path: Path) -> None:
    # given a canary that is held at 10 % by its gate
    async with running_system(tmp_path, OPTIONS) as system:
        await system.until_served()
        await system.write(f"canaries/{SERVICE}", canary_document())
        await until_canary_at(system, 10)

        # when each of many conversations asks several times
        at_10 = [await ask(system, SESSIONS) for _ in range(ROUNDS)]

        # then none changes its version, and each has the one that was predicted
        assert at_10[1:] == at_10[:-1]
        assert at_10[0] == {key: predicted(key, 10) for key in SESSIONS}
        share = sum(version == "v2" for version in at_10[0].values()) / len(SESSIONS)
        assert share == pytest.approx(0.10, abs=0.02)

        # when the gate is lifted, and the canary goes to 20 %
        await system.write(f"canaries/{SERVICE}", canary_document(first_gate=False))
        await until_canary_goes_to(system, 20)
        at_20 = [await ask(system, SESSIONS) for _ in range(ROUNDS)]

        # then conversations only ever moved to the canary, again as predicted
        assert at_20[1:] == at_20[:-1]
        assert at_20[0] == {key: predicted(key, 20) for key in SESSIONS}
        assert [key for key in SESSIONS if at_10[0][key] == "v2" and at_20[0][key] == "v1"] == []
        share = sum(version == "v2" for version in at_20[0].values()) / len(SESSIONS)
        assert share == pytest.approx(0.20, abs=0.03)

        # when it is aborted
        counters = await system.update_counters()
        await system.write(f"canaries/{SERVICE}", canary_document(first_gate=False, desired="aborted"))
        await until_canary_at(system, 0)

        # then one push of the routes took all of its traffic
        routes = "http.trimtab.rds.trimtab.update_success"
        assert (await system.update_counters())[routes] == counters[routes] + 1
        before = await requests_at(system, CANARY)
        assert set((await ask(system, SESSIONS)).values()) == {"v1"}
        assert await requests_at(system, CANARY) == before
