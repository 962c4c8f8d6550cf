"""An Envoy that refuses a resource: it is told once, people are told why, and all else goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import System, SystemOptions, running_system, strategy_document

pytestmark = [pytest.mark.envoy]

OPTIONS = SystemOptions(
    documents="directory",
    topology="file",
    signals="scrape",
    speeds=(1.0,) * 2,
    is_envoy_started=False,
)
REASON = "has duplicate address"
PUSHES = 3


def occupy_listener(system: System) -> None:
    """Give Envoy's bootstrap a listener on the address that Trimtab's is meant for."""
    file = system.folder / "bootstrap.json"
    bootstrap = json.loads(file.read_text())
    address = {"socket_address": {"address": "127.0.0.1", "port_value": system.ports.listener}}
    kind = "envoy.extensions.filters.network.direct_response.v3.Config"
    answer = {"name": "answer", "typed_config": {"@type": f"type.googleapis.com/{kind}"}}
    listener = {"name": "static", "address": address, "filter_chains": [{"filters": [answer]}]}
    bootstrap["static_resources"]["listeners"] = [listener]
    file.write_text(json.dumps(bootstrap))


async def listener_status(system: System) -> dict[str, Any]:
    """Read how the node stands with the listener; empty before it connects."""
    nodes = (await system.get("/v1/status"))["nodes"]
    types = nodes[0]["types"] if nodes else []
    found: dict[str, Any] = next((each for each in types if each["type"] == "Listener"), {})
    return found


async def push_weight(system: System, number: int) -> None:
    """Put another strategy in force, and wait until Envoy has its weights."""
    heavy, light = system.names
    parameters = {"weights": {heavy: 1 + number, light: 1}}
    await system.write_strategy(strategy_document(f"1.{number}.0", law="static", parameters=parameters))

    async def is_there() -> bool:
        weights = await system.weights()
        return weights[heavy] / weights[light] == pytest.approx(1 + number, rel=0.02)

    await system.until(is_there)


@pytest.mark.fault("R15")
async def test_a_refused_resource_is_sent_once_and_its_reason_is_shown(tmp_path: Path) -> None:
    # given an Envoy that cannot take the listener
    async with running_system(tmp_path, OPTIONS) as system:
        occupy_listener(system)
        await system.envoy.start()

        # when it refuses it
        async def is_nacked() -> bool:
            return bool((await listener_status(system)).get("nack_message"))

        await system.until(is_nacked)

        # then the reason is shown, in the API and on the command line
        status = await listener_status(system)
        assert status["state"] == "NACKED"
        assert REASON in status["nack_message"]
        assert status["nacked_version"] == status["intended_version"]
        _, output = await system.cli("status", "--addr", system.admin_url)
        assert REASON in " ".join(output.split())

        # when other resources change meanwhile, and are taken
        for number in range(1, PUSHES + 1):
            await push_weight(system, number)

        # then the refused one was not sent again
        counters = await system.update_counters()
        assert counters["listener_manager.lds.update_rejected"] == 1
        assert counters["listener_manager.lds.update_success"] == 0
        assert counters["cluster.chat.update_success"] > PUSHES
        assert (await listener_status(system))["nack_message"] == status["nack_message"]
