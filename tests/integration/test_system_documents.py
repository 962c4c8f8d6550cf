"""A strategy's way from Consul KV to Envoy, and what never gets there."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import SERVICE, System, SystemOptions, running_system, strategy_document

pytestmark = [pytest.mark.envoy, pytest.mark.consul]

SCRAPING = SystemOptions(signals="scrape", speeds=(1.0, 1.0, 1.0))
ENDPOINTS = "ClusterLoadAssignment"


def static_strategy(
    system: System, version: str, weights: tuple[float, ...], **changes: object
) -> dict[str, Any]:
    """Write a strategy that fixes the share of each model server."""
    parameters = {"weights": dict(zip(system.names, weights, strict=True))}
    return strategy_document(version, law="static") | {"parameters": parameters} | changes


async def test_a_strategy_is_accepted_then_logged_then_published_then_acknowledged(tmp_path: Path) -> None:
    async with running_system(tmp_path, SCRAPING) as system:
        await system.until_served()
        await system.until(lambda: has_acked(system))
        before = (await system.acked())[ENDPOINTS]

        # When Envoy cannot answer, everything before its ACK happens all the same.
        system.envoy.signal(signal.SIGSTOP)
        await system.write_strategy(static_strategy(system, "1.1.0", (1, 2, 2)))
        await system.until(lambda: is_in_force(system, "1.1.0"))
        hash_ = (await system.service())["strategy"]["hash"]
        await system.until(lambda: is_logged(system, hash_))
        await system.until(lambda: is_intended_other_than(system, before[0]))
        assert (await system.acked())[ENDPOINTS][1] == before[1]

        # When Envoy goes on, it acknowledges what was logged.
        system.envoy.signal(signal.SIGCONT)
        await system.until(lambda: has_settled(system, hash_))
        assert (await system.acked())[ENDPOINTS][1] != before[1]
        record = published(system, hash_)[-1]
        assert await system.weights() == await system.assigned() == record["weights"]
        assert events_in_order(system, "1.1.0") == ["strategy_accepted", "published"]
        assert [event.get("version") for event in events(system, "strategy_accepted")] == ["1.0.0", "1.1.0"]
        history = await system.get(f"/v1/services/{SERVICE}/history")
        assert [found["version"] for found in history["documents"]] == ["1.0.0", "1.1.0"]


async def test_the_push_command_returns_when_envoy_has_the_strategy(tmp_path: Path) -> None:
    async with running_system(tmp_path, SCRAPING) as system:
        await system.until_served()
        file = tmp_path / "pushed.json"
        file.write_text(json.dumps(static_strategy(system, "2.0.0", (1, 2, 2))))

        code, output = await system.cli(
            *("strategy", "push", SERVICE, str(file), "--config", str(system.config))
        )

        assert code == 0, output
        assert (await system.service())["strategy"]["version"] == "2.0.0"
        assert any(found["inputs"]["strategy"]["version"] == "2.0.0" for found in system.decisions())


async def test_refused_documents_leave_no_trace_in_envoy(tmp_path: Path) -> None:
    async with running_system(tmp_path, SCRAPING) as system:
        await system.until_served()
        await system.until(lambda: has_acked(system))
        good = (await system.service())["strategy"]
        counters = await system.update_counters()
        weights = await system.weights()

        for body, path, reason in bad_documents(system):
            await system.write(f"strategies/{SERVICE}", body)
            await system.until(partial(is_refused, system, path, reason))
            await system.until(partial(is_reported, system, path, reason))
            assert (await system.service())["strategy"] == good

        await wait_for_ticks(system, 3)
        assert await system.update_counters() == counters
        assert await system.weights() == weights

        # A good one afterwards is taken, and the refusal is forgotten.
        await system.write_strategy(strategy_document("1.0.1"))
        await system.until(lambda: is_in_force(system, "1.0.1"))
        assert (await system.service())["rejected"] is None


async def test_a_deleted_strategy_stays_in_force_until_it_is_written_again(tmp_path: Path) -> None:
    async with running_system(tmp_path, SCRAPING) as system:
        await system.until_served()
        await system.until(lambda: has_acked(system))
        counters = await system.update_counters()

        await system.delete(f"strategies/{SERVICE}")

        await system.until(lambda: has_flags(system, ["strategy_deleted"]))
        await system.until(lambda: is_reported_with(system, ["strategy_deleted"]))
        await wait_for_ticks(system, 3)
        assert await system.update_counters() == counters
        assert (await system.service())["strategy"]["version"] == "1.0.0"

        await system.write_strategy(static_strategy(system, "1.1.0", (1, 2, 2)))

        await system.until(lambda: is_in_force(system, "1.1.0"))
        await system.until(lambda: has_flags(system, []))
        await system.until(lambda: is_heavier(system, system.names[1], system.names[0]))


async def test_a_consul_that_starts_over_empty_deletes_nothing(tmp_path: Path) -> None:
    options = SystemOptions(
        signals="scrape",
        speeds=(1.0, 1.0, 1.0),
        # Even when the hold of a sudden loss is over, an empty store is no reason to drain a service.
        settings={"loop": {"interval_seconds": 0.5, "topology_hold_seconds": 3}},
    )
    async with running_system(tmp_path, options) as system:
        await system.until_served()
        await system.until(lambda: has_acked(system))
        counters = await system.update_counters()
        await system.consul.kill()
        await wait_for_ticks(system, 2)

        await system.consul.start()

        await system.until(lambda: has_flag(system, "strategy_store_reset"))
        await system.until(lambda: has_flag(system, "topology_held"))
        await wait_for_ticks(system, 7)
        assert not await has_flag(system, "strategy_deleted")
        assert await system.update_counters() == counters
        assert set(await system.weights()) == set(system.names)

        # The first server that is registered again does not stand for all.
        await system.announce({SERVICE: system.names[:1]})
        await wait_for_ticks(system, 4)
        assert set(await system.weights()) == set(system.names)
        assert await system.update_counters() == counters

        # What is registered again is believed again: also the loss of one server.
        await system.announce({SERVICE: system.names[1:]})
        await system.write_strategy(static_strategy(system, "1.1.0", (1, 2, 2)))
        await system.until(lambda: has_flags(system, []))
        await system.until(lambda: is_heavier(system, system.names[1], system.names[0]))
        address, _, port = system.names[0].rpartition(":")
        await system.consul.deregister(f"{SERVICE}-{address}-{port}")
        await system.until_served(endpoints=system.names[1:])


async def test_a_retired_service_leaves_envoy_and_the_others_stay(tmp_path: Path) -> None:
    async with running_system(tmp_path, SCRAPING) as system:
        await system.announce({"other": system.names[:2]})
        await system.write_strategy(
            strategy_document("1.0.0", routing={"domains": ["other.test"]}), service="other"
        )
        await system.until_served()
        await system.until_served("other", endpoints=system.names[:2])
        await system.until(lambda: has_acked(system))
        other = await system.envoy_admin.counters("cluster.other.")

        await system.write_strategy(strategy_document("1.1.0", retired=True))

        await system.until(lambda: is_gone(system, SERVICE))
        await system.until(lambda: has_acked(system))
        assert set(await system.weights("other")) == set(system.names[:2])
        counters = await system.update_counters()
        assert not any(value for name, value in counters.items() if name.endswith(".update_rejected"))
        assert await system.envoy_admin.counters("cluster.other.") == other
        assert await status_of(system, "other.test") == 200
        assert await status_of(system, "elsewhere.test") == 404

        # It comes back like any other.
        await system.write_strategy(strategy_document("1.2.0"))
        await system.until_served()
        await system.until(lambda: is_answered(system, "elsewhere.test"))


def bad_documents(system: System) -> list[tuple[bytes | dict[str, Any], str, str]]:
    """(document, path of the problem, part of its reason)."""
    oversized = strategy_document("1.1.0", description="x" * 300_000)
    one_host = static_strategy(system, "1.1.0", (98, 1, 1))
    return [
        (b'{"schema": 1, "version": ', "", "JSON"),
        (json.dumps(oversized).encode(), "", "bytes"),
        (one_host, "parameters", "one endpoint has more than 90%"),
        (strategy_document("1.1.0", law="magic"), "law", "is not a known law"),
        (strategy_document("1.1.0", guards={"interval_seconds": -1}), "guards.interval_seconds", ""),
        (strategy_document("1.0.0", description="changed"), "version", "raise the version"),
    ]


async def has_acked(system: System) -> bool:
    """Tell if Envoy acknowledged all that it should have."""
    types = await system.acked()
    return ENDPOINTS in types and all(intended == acked for intended, acked in types.values())


async def is_in_force(system: System, version: str) -> bool:
    return bool((await system.service())["strategy"]["version"] == version)


def published(system: System, hash_: str) -> list[dict[str, Any]]:
    """Records of published decisions that were made under a strategy."""
    return [record for record in system.decisions() if record["inputs"]["strategy_hash"] == hash_]


async def is_logged(system: System, hash_: str) -> bool:
    return bool(published(system, hash_))


async def is_intended_other_than(system: System, version: str) -> bool:
    return (await system.acked())[ENDPOINTS][0] != version


async def has_settled(system: System, hash_: str) -> bool:
    """Tell if Envoy has the weights of the last decision, and that one is where the law points to."""
    record = published(system, hash_)[-1]
    rows = (await system.get(f"/v1/services/{SERVICE}/weights"))["endpoints"]
    is_steady = all(row["trend"] == "steady" for row in rows)
    return is_steady and await has_acked(system) and await system.weights() == record["weights"]


async def is_refused(system: System, path: str, reason: str) -> bool:
    return names_problem((await system.service())["rejected"], path, reason)


async def is_reported(system: System, path: str, reason: str) -> bool:
    return names_problem((await system.reported())["rejected"], path, reason)


def names_problem(rejected: Mapping[str, Any] | None, path: str, reason: str) -> bool:
    problems = rejected["problems"] if rejected else []
    return any(found["path"].startswith(path) and reason in found["reason"] for found in problems)


async def has_flags(system: System, flags: list[str]) -> bool:
    return bool((await system.service())["flags"] == flags)


async def has_flag(system: System, flag: str) -> bool:
    return flag in (await system.service())["flags"]


async def is_reported_with(system: System, flags: list[str]) -> bool:
    return bool((await system.reported()).get("flags") == flags)


async def is_heavier(system: System, one: str, other: str) -> bool:
    weights = await system.weights()
    return weights[one] > 1.8 * weights[other]


async def is_gone(system: System, cluster: str) -> bool:
    return not await system.weights(cluster)


async def status_of(system: System, host: str) -> int:
    """Ask for the models through Envoy; gives the status."""
    async with system.session.get(f"{system.envoy_url}/v1/models", headers={"host": host}) as answer:
        return answer.status


async def is_answered(system: System, host: str) -> bool:
    return await status_of(system, host) == 200


async def wait_for_ticks(system: System, count: int) -> None:
    """Let Trimtab decide so many times more: what must not happen had its chances then."""
    for _ in range(count):
        before = (await system.get("/v1/status"))["at_seconds"]

        async def has_ticked(before: float = before) -> bool:
            status = await system.get("/v1/status")
            age = status["last_tick_age_seconds"]
            return age is not None and status["at_seconds"] - age > before

        await system.until(has_ticked)


def events_in_order(system: System, version: str) -> list[str]:
    """Names of Trimtab's log events from the acceptance of a version to the first publication after."""
    found = events(system)
    accepted = next(index for index, event in enumerate(found) if event.get("version") == version)
    names = [event["event"] for event in found[accepted:]]
    return names[: names.index("published") + 1]


def events(system: System, name: str = "") -> list[dict[str, Any]]:
    """Read Trimtab's log events, oldest first; those of one name if it is given."""
    lines = system.trimtab.output.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in found if name in ("", event["event"])]
