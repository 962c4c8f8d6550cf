"""The Consul fixture itself: starts, is killed, starts again empty."""

from __future__ import annotations

import pytest

from tests.support.consul_server import consul_server

pytestmark = pytest.mark.consul


async def test_a_restarted_agent_is_empty() -> None:
    async with consul_server() as consul:
        await consul.put("a/b", "1")
        assert await consul.api("GET", "kv/a/b?raw") == "1"
        await consul.kill()
        await consul.start()
        assert await consul.api("GET", "kv/a/b?raw", ok=False) == ""
