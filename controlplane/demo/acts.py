"""The acts: each changes one thing, waits until Envoy and the servers show the effect, and judges it.

Nothing is assumed: weights and routes are read from Envoy's admin port, shares and latencies from the
answers that the load got.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from controlplane.demo.files import strategy
from controlplane.demo.play import Play
from controlplane.demo.stage import SERVICE

_TEN_PERCENT = 10

_CANARY = {
    "schema": 1,
    "canary": {"version": "v2"},
    "baseline": {"version": "v1"},
    "steps": [{"weight_percent": 10, "hold_seconds": 600}],
    "analysis": {
        "interval_seconds": 1,
        "consecutive_failures": 2,
        "min_requests": 3,
        "metrics": [{"signal": "ttft_p90_seconds", "max_value": 1.5, "max_ratio_to_baseline": 2.0}],
    },
}


async def warm_up(play: Play) -> None:
    """Measure the fleet as it is without Trimtab's law: every server gets the same."""
    play.begin("equal weights")
    await play.watch_for(12.0)
    before = play.load_since_act(skip_seconds=6.0)
    play.summary.figures["before_p50_seconds"] = before.p50_seconds
    play.summary.figures["before_p99_seconds"] = before.p99_seconds
    hosts = await play.envoy.hosts(SERVICE)
    weights = {host.weight for host in hosts.values()}
    play.claim(
        "starts with equal weights",
        is_met=max(weights) - min(weights) <= 1,
        measured=f"weights in Envoy: {sorted(weights)}",
    )


async def adapt(play: Play) -> None:
    """Switch the law to `capacity` by editing the document: weights follow what servers can do."""
    play.begin("capacity law")
    play.stage.write_strategy(strategy("1.1.0", law="capacity"))

    def is_adapted() -> bool:
        return play.share_of(speed=4.0) > 2.0 * play.share_of(speed=1.0)

    seconds = await play.wait_until(is_adapted, deadline_seconds=20.0)
    await play.watch_for(16.0)
    after = play.load_since(play.now() - 8.0)
    figures = play.summary.figures
    figures["after_p50_seconds"] = after.p50_seconds
    figures["after_p99_seconds"] = after.p99_seconds
    fast, slow = play.share_of(speed=4.0), play.share_of(speed=1.0)
    play.claim(
        "weights adapt to capacity",
        is_met=seconds is not None,
        measured=f"share of a 4× server {fast:.1%}, of a 1× server {slow:.1%}, reached in {_show(seconds)}",
    )


async def fall_sick(play: Play) -> None:
    """Slow one of the fastest servers down tenfold, watch it drained, then heal it."""
    play.begin("a server falls sick")
    sick = play.host_with(speed=4.0)
    healthy_share = play.weight_share(sick)
    await play.set_fault(sick, slow_factor=10.0)
    play.notes[sick] = "sick"
    drained = await play.wait_until(
        lambda: play.weight_share(sick) < healthy_share / 3, deadline_seconds=20.0
    )
    await play.watch_for(3.0)
    requests = play.load_since(play.now() - 2.5).share(sick)
    play.claim(
        "a sick server is drained",
        is_met=drained is not None and requests < healthy_share / 2,
        measured=f"weight {healthy_share:.1%} → {play.weight_share(sick):.1%} in {_show(drained)}, "
        f"requests now {requests:.1%}",
    )
    await play.set_fault(sick, slow_factor=1.0)
    play.notes[sick] = "healed"
    back = await play.wait_until(
        lambda: play.weight_share(sick) > 0.6 * healthy_share, deadline_seconds=35.0
    )
    await play.watch_for(2.0)
    play.claim(
        "a healed server comes back",
        is_met=drained is not None and back is not None,
        measured=f"weight {play.weight_share(sick):.1%} in {_show(back)}",
    )
    play.notes.pop(sick)


async def reload(play: Play) -> None:
    """Edit the strategy: Envoy has the new routes within a second or so."""
    play.begin("a strategy edit")
    written_at = time.perf_counter()
    play.stage.write_strategy(strategy("1.2.0", law="capacity", idle_timeout_seconds=123.0))
    is_there = _becomes(lambda: play.envoy.idle_timeout(SERVICE), "123s")
    in_time = await is_there(5.0)
    seconds = time.perf_counter() - written_at
    play.summary.figures["reload_seconds"] = seconds
    play.claim(
        "a strategy edit is reloaded hot",
        is_met=in_time,
        measured=f"Envoy's route has the new idle timeout after {seconds:.2f} s",
    )


async def canary(play: Play) -> None:
    """Move 10 % to v2, let v2 break its SLO, and see it rolled back."""
    play.begin("a canary at 10 %")
    play.stage.write_canary(_CANARY)
    ten = await play.wait_until(
        lambda: round(play.canary_percent or 0.0) == _TEN_PERCENT, deadline_seconds=15.0
    )
    await play.watch_for(7.0)
    load = play.load_since(play.now() - 5.0)
    share = sum(load.share(host) for host in play.hosts_of_version("v2"))
    play.claim(
        "the canary gets 10 %",
        is_met=ten is not None and play.canary_percent != 0.0 and 0.02 < share < 0.25,  # noqa: PLR2004 - 10 % of few sessions
        measured=f"Envoy's split {play.canary_percent or 0.0:.1f} %, "
        f"{share:.1%} of {load.requests} requests",
    )
    play.begin("the canary breaks its SLO")
    for host in play.hosts_of_version("v2"):
        await play.set_fault(host, slow_factor=8.0)
        play.notes[host] = "sick"
    back = await play.wait_until(lambda: play.canary_percent == 0.0, deadline_seconds=25.0)
    rolled_back_at = play.now()
    await play.watch_for(3.0)
    share = play.share_begun_since(rolled_back_at, play.hosts_of_version("v2"))
    play.summary.figures["rollback_seconds"] = back if back is not None else -1.0
    play.claim(
        "an SLO breach rolls the canary back",
        is_met=back is not None and share == 0.0,
        measured=f"Envoy's split 0 % after {_show(back)}, {share:.1%} of new requests at v2",
    )


def _becomes(read: Callable[[], Awaitable[str]], wanted: str) -> Callable[[float], Awaitable[bool]]:
    async def wait(deadline_seconds: float) -> bool:
        try:
            async with asyncio.timeout(deadline_seconds):
                while await read() != wanted:  # noqa: ASYNC110 - Envoy's admin port has no event to wait for
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    return wait


def _show(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"
