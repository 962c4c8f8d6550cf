"""A strategy's way from Consul KV to Envoy, and what never gets there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.system import SystemOptions, running_system, strategy_document

pytestmark = [pytest.mark.envoy, pytest.mark.consul]

SCRAPING = SystemOptions(signals="scrape")


async def test_a_strategy_is_accepted_then_logged_then_acknowledged(tmp_path: Path) -> None:
    async with running_system(tmp_path, SCRAPING) as system:
        await system.until_served()
