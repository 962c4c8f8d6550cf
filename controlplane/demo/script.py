"""The play, top to bottom."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from controlplane.demo import acts
from controlplane.demo.envoy import EnvoyAdmin
from controlplane.demo.play import Play
from controlplane.demo.screen import Screen, open_screen
from controlplane.demo.stage import DemoError, Stage, pick_ports, processes, write_files
from controlplane.sim.load import LoadGenerator, LoadOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the audience may choose."""

    keep: bool = False
    """Leave everything running at the end, until Ctrl-C."""
    requests_per_second: float
    sessions: int
    """Conversations that take turns."""


def run(options: DemoOptions) -> int:
    """Play the demo; 0 only if everything it shows really happened, 130 if it was interrupted."""
    try:
        return asyncio.run(_run(options))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


async def _run(options: DemoOptions) -> int:
    playing = asyncio.current_task()
    if playing is not None:  # SIGTERM must end the processes too, as Ctrl-C does
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    screen = open_screen()
    with tempfile.TemporaryDirectory(prefix="trimtab-demo-") as folder:
        stage = write_files(Path(folder), pick_ports())
        try:
            async with processes(stage):
                return await _play(options, stage, screen)
        except DemoError as error:
            screen.close()
            print(error, file=sys.stderr)
            return 1


async def _play(options: DemoOptions, stage: Stage, screen: Screen) -> int:
    load = LoadGenerator(
        LoadOptions(
            url=stage.envoy_url,
            requests_per_second=options.requests_per_second,
            sessions=options.sessions,
            prompt_tokens=140,
            max_tokens=(6, 14),
            seed=1,
        ),
    )
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        envoy = EnvoyAdmin(stage.envoy_admin_url, session)
        play = Play(stage=stage, envoy=envoy, load=load, screen=screen, session=session)
        driving = group.create_task(load.run())
        for act in (acts.warm_up, acts.adapt, acts.fall_sick, acts.reload, acts.canary):
            await act(play)
        _sum_up(play)
        screen.close()
        _print(play)
        if options.keep:
            await _stay(stage)
        driving.cancel()
    return 0 if play.summary.is_ok else 1


def _sum_up(play: Play) -> None:
    total = play.load_since(0.0)
    play.summary.figures.update(
        requests=total.requests,
        errors=total.errors,
        cache_hit_ratio=total.cache_hit_ratio,
        keys_moved_ratio=play.moved.total_ratio,
        weight_changes=play.moved.changes,
        seconds=play.now(),
    )
    play.claim("no request fails", is_met=total.errors == 0, measured=f"{total.errors} of {total.requests}")


def _print(play: Play) -> None:
    figures = play.summary.figures
    print(
        f"""
requests        {figures["requests"]:.0f}, errors {figures["errors"]:.0f}
latency         p50 {figures["before_p50_seconds"]:.2f} s → {figures["after_p50_seconds"]:.2f} s, \
p99 {figures["before_p99_seconds"]:.2f} s → {figures["after_p99_seconds"]:.2f} s
cache hits      {figures["cache_hit_ratio"]:.0%}
keys moved      {figures["keys_moved_ratio"]:.0%} of all keys, in {figures["weight_changes"]:.0f} pushes
took            {figures["seconds"]:.0f} s
"""
    )
    for check in play.summary.checks:
        print(f"{'✓' if check.is_met else '✗'} {check.name}: {check.measured}")
    if not sys.stdout.isatty():
        print(json.dumps(play.summary.to_json(), allow_nan=False))
    sys.stdout.flush()


async def _stay(stage: Stage) -> None:
    command = f"trimtab {{}} --addr {stage.trimtab_url}"
    print(
        f"""
Everything is still running; Ctrl-C ends it. Try, in another terminal:

  {command.format("status")}
  {command.format("weights chat --watch")}
  {command.format("explain chat")}
  {command.format("canary get chat")}
  trimtab strategy get chat --config {stage.config}
  curl {stage.envoy_url}/v1/models -H 'x-session-id: me'
  curl {stage.envoy_admin_url}/clusters
""",
        flush=True,
    )
    await asyncio.Event().wait()
