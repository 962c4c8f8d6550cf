from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import replace
from itertools import pairwise

import aiohttp
import pytest

from controlplane.errors import SettingsError
from controlplane.sim.command import serve
from controlplane.sim.engine import Fault, Profile
from controlplane.sim.fleet import SimFleet, SimOptions, consecutive_ports
from controlplane.sim.load import LoadGenerator, LoadOptions
from controlplane.sim.server import SimServer
from tests.support.sim_wait import DEADLINE_SECONDS, eventually, unused_port

FAST = Profile(decode_tokens_per_second=500.0, prefill_tokens_per_second=100_000.0)
LOAD = LoadOptions(
    url="",
    requests_per_second=100.0,
    sessions=8,
    max_turns=4,
    prompt_tokens=100,
    max_tokens=(2, 6),
    deadline_seconds=5.0,
)


def load_on(server: SimServer, **fields: object) -> LoadGenerator:
    return LoadGenerator(replace(LOAD, url=f"http://{server.name}", **fields))  # type: ignore[arg-type]


async def test_conversations_grow_hit_the_cache_and_end() -> None:
    async with SimFleet(SimOptions(ports=(0,), profile=FAST)) as fleet:
        server = fleet.servers[0]
        load = load_on(server, system_tokens=20)

        await load.run(seconds=1.0)

    report = load.report(slice_seconds=0.25)
    assert report.errors == 0
    assert 60 <= report.requests <= 150
    assert sum(piece.requests for piece in report.slices) == report.requests
    assert report.requests_by_server == {server.name: report.requests}
    assert 0 < report.ttft_p50_seconds <= report.p50_seconds <= report.p99_seconds
    by_turn = {answer.turn: answer for answer in load.answers}
    assert sorted(by_turn) == [0, 1, 2, 3]
    ratios = [by_turn[turn].cache_hit_ratio for turn in range(4)]
    assert ratios == sorted(ratios)
    assert ratios[0] < 0.2
    assert ratios[1] > 0.4
    assert all(answer.version == "v1" and answer.is_good for answer in load.answers)
    ends = [answer.ended_at for answer in load.answers]
    assert ends == sorted(ends)
    middle = (ends[0] + ends[-1]) / 2
    assert len(load.window(0, middle)) == load.report(until=middle).requests


async def test_a_session_has_one_request_under_way_and_the_server_counts_the_same() -> None:
    async with SimFleet(SimOptions(ports=(0,), profile=FAST)) as fleet:
        load = load_on(fleet.servers[0], sessions=2)
        await load.run(seconds=0.5)
        sessions = fleet.servers[0].state()["sessions"]

    spans: dict[str, list[tuple[float, float]]] = {}
    for answer in load.answers:
        spans.setdefault(answer.session, []).append((answer.began_at, answer.ended_at))
    assert {session: len(found) for session, found in spans.items()} == sessions
    for found in spans.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(found)))


async def test_the_load_does_not_wait_for_a_slow_server() -> None:
    slow = replace(FAST, decode_tokens_per_second=10.0, max_running=4)
    async with SimFleet(SimOptions(ports=(0,), profile=slow)) as fleet:
        load = load_on(fleet.servers[0], requests_per_second=60.0, max_tokens=(4, 4))

        await load.run(seconds=0.5)

    began = [answer.began_at for answer in load.answers]
    assert max(began) - min(began) < 0.6
    assert load.report().p99_seconds > 1.0


async def test_equal_seeds_ask_the_same_questions_and_others_do_not() -> None:
    async def cached(*seeds: int) -> float:
        """Send one load after another; give what the last one found in the cache at its first turns."""
        async with SimFleet(SimOptions(ports=(0,), profile=FAST)) as fleet:
            for seed in seeds:
                load = load_on(fleet.servers[0], seed=seed, max_turns=1)
                await load.run(seconds=0.2)
        return load.report().cache_hit_ratio

    assert await cached(1, 2) == 0
    assert await cached(1, 1) > 0.5


async def test_errors_are_told_apart() -> None:
    async with SimFleet(SimOptions(ports=(0, 0), profile=FAST)) as fleet:
        failing, hanging = fleet.servers
        failing.set_fault(Fault(error_ratio=1.0))
        hanging.set_fault(Fault(hang=True))
        loads = {
            "http": load_on(failing),
            "timeout": load_on(hanging, deadline_seconds=0.2),
            "dropped": load_on(hanging, deadline_seconds=0.2, max_in_flight=0),
            "connection": LoadGenerator(replace(LOAD, url=f"http://127.0.0.1:{unused_port()}")),
        }
        async with asyncio.TaskGroup() as group:
            for load in loads.values():
                group.create_task(load.run(seconds=0.2))

    for kind, load in loads.items():
        report = load.report()
        assert set(report.errors_by_kind) == {kind}
        assert report.errors == report.requests > 0
        assert not any(answer.turn for answer in load.answers)


async def test_an_answer_broken_off_is_truncated() -> None:
    slow = replace(FAST, decode_tokens_per_second=20.0)
    async with SimFleet(SimOptions(ports=(0,), profile=slow)) as fleet:
        server = fleet.servers[0]
        load = load_on(server, max_tokens=(500, 500))
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(stop=stop))
            await eventually(lambda: server.engine.running > 2 and server.engine.busy_seconds > 0.2)
            stop.set()
            await server.stop()

    kinds = load.report().errors_by_kind
    assert kinds["truncated"] > 0
    assert set(kinds) <= {"truncated", "connection"}


async def test_sessions_that_move_between_servers_are_seen() -> None:
    async with SimFleet(SimOptions(ports=(0, 0), versions=("v1", "v2"), profile=FAST)) as fleet:
        first, second = fleet.servers
        load = load_on(first, sessions=4, max_turns=1_000)
        await load.run(seconds=0.3)
        load._options = replace(load._options, url=f"http://{second.name}")
        await load.run(seconds=0.3)

    report = load.report()
    assert report.moved_sessions == report.flipped_sessions == 4
    assert report.share(first.name) + report.share(second.name) == pytest.approx(1.0)


async def test_records_are_bounded() -> None:
    async with SimFleet(SimOptions(ports=(0,), profile=FAST)) as fleet:
        load = load_on(fleet.servers[0], max_records=5)
        await load.run(seconds=0.3)

    assert len(load.answers) == 5


async def test_serve_runs_until_told_to_stop() -> None:
    stop = asyncio.Event()
    port = unused_port()
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as client:
        serving = group.create_task(serve(SimOptions(ports=(port,)), stop=stop))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                try:
                    async with client.get(f"http://127.0.0.1:{port}/health") as response:
                        assert response.status == 200
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.01)
        stop.set()
        await serving


async def test_a_taken_port_leaves_none_open() -> None:
    async with SimFleet(SimOptions(ports=(0,))) as fleet:
        free = unused_port()
        other = SimFleet(SimOptions(ports=(free, fleet.servers[0].port)))

        with pytest.raises(OSError, match="in use"):
            await other.start()

        async with aiohttp.ClientSession() as client:
            with pytest.raises(aiohttp.ClientConnectionError):
                await client.get(f"http://127.0.0.1:{free}/health")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_program_ends_in_peace_on_a_signal(number: signal.Signals) -> None:
    program = (
        "from controlplane.sim.command import run; from controlplane.sim.fleet import SimOptions;"
        "run(SimOptions(ports=(0, 0)))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            for _ in range(2):
                assert b"sim_listening" in await process.stdout.readline()
            process.send_signal(number)
            rest = await process.stdout.read()
            assert await process.wait() == 0
        assert b"sim_stopped" in rest
        assert b"Traceback" not in rest
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_options_are_checked() -> None:
    assert consecutive_ports(9001, 3) == (9001, 9002, 9003)
    assert consecutive_ports(0, 2) == (0, 0)
    for wrong in (
        lambda: consecutive_ports(65_535, 2),
        lambda: consecutive_ports(9001, 0),
        lambda: SimOptions(ports=()),
        lambda: SimOptions(ports=(70_000,)),
        lambda: SimOptions(speeds=(0.0,)),
    ):
        with pytest.raises(SettingsError):
            wrong()
