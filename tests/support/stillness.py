"""Tell if Envoy applied anything, and wait until it does not."""

from __future__ import annotations

import asyncio
import json

from tests.support.system import PATIENCE_SECONDS, System

_APPLIED = (
    r"^(cluster_manager\.(cluster_(added|modified|removed|updated)"
    r"|cds\.(update_success|update_rejected|config_reload))"
    r"|listener_manager\.(listener_(added|modified|removed|create_success)"
    r"|lds\.(update_success|update_rejected|config_reload))"
    r"|http\..*\.rds\..*\.(config_reload|update_success|update_rejected)"
    r"|cluster\.chat.*\.(update_success|update_rejected|membership_change))$"
)


async def applied(system: System) -> dict[str, int]:
    """Read the counters that move when Envoy gets or applies a resource, whatever its kind."""
    url = f"http://127.0.0.1:{system.ports.envoy_admin}/stats"
    async with system.session.get(url, params={"filter": _APPLIED, "format": "json"}) as answer:
        stats = json.loads(await answer.text())["stats"]
    return {stat["name"]: int(stat["value"]) for stat in stats if "value" in stat}


async def settle(
    system: System, *, quiet_seconds: float = 2.0, seconds: float = PATIENCE_SECONDS
) -> dict[str, int]:
    """Wait until Envoy acknowledged all that Trimtab intends, and applied nothing new for a while.

    Gives the counters of `applied` at that point.
    """
    loop = asyncio.get_running_loop()
    last, since = await applied(system), loop.time()

    async def is_still() -> bool:
        nonlocal last, since
        now = await applied(system)
        acked = await system.acked()
        is_synced = bool(acked) and all(intended == has for intended, has in acked.values())
        if now != last or not is_synced:
            last, since = now, loop.time()
        return loop.time() - since >= quiet_seconds

    await system.until(is_still, seconds=seconds)
    return last
