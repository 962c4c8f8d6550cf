"""Document commands on a real Consul."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.consul_server import consul_server

pytestmark = pytest.mark.consul


async def trimtab(
    *arguments: str, consul: str, text: str = "", endpoints: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command with Consul as its document store."""
    settings = {"TRIMTAB_SOURCES__DOCUMENTS": "consul", "TRIMTAB_CONSUL__ADDRESS": consul}
    if endpoints:
        settings["TRIMTAB_SOURCES__ENDPOINTS_FILE"] = endpoints
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "controlplane", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        input=text,
        env=os.environ | settings,
    )


async def test_documents_live_in_consul(tmp_path: Path) -> None:
    # given a Consul, and an endpoint file that is not there
    absent = str(tmp_path / "endpoints.yaml")
    async with consul_server() as consul:
        address = consul.address
        document = json.dumps({"schema": 1, "version": "1.0.0"})
        # when a strategy is pushed, then it can be read back, with its revision
        pushed = await trimtab("strategy", "push", "chat", "-", "--no-wait", consul=address, text=document)
        assert pushed.returncode == 0, pushed.stderr
        got = await trimtab("strategy", "get", "chat", consul=address)
        assert json.loads(got.stdout) == json.loads(document)
        assert "trimtab/v1/strategies/chat: revision" in got.stderr
        # when somebody else's revision is expected, then nothing is written
        lost = await trimtab(
            *("strategy", "push", "chat", "-", "--no-wait", "--cas", "1"),
            consul=address,
            text=json.dumps({"schema": 1, "version": "1.1.0"}),
        )
        assert lost.returncode == 5
        # canaries and the kill switch go the same way
        started = await trimtab("canary", "start", "chat", "--canary", "version=v2", consul=address)
        assert started.returncode == 0, started.stderr
        assert (await trimtab("canary", "pause", "chat", consul=address)).returncode == 0
        assert (await trimtab("freeze", consul=address)).returncode == 0
        assert "freeze ended" in (await trimtab("unfreeze", consul=address)).stdout
        # and `check` reaches what it needs, and says what is missing
        checked = await trimtab("check", "--timeout", "3", consul=address, endpoints=absent)
        assert "√ documents (consul): strategies for chat" in checked.stdout
        assert "× endpoints (file)" in checked.stdout
    # when Consul is gone, then it is unreachable, and a document is not lost silently
    gone = await trimtab("strategy", "get", "chat", consul=address)
    assert gone.returncode == 3
    assert "Traceback" not in gone.stderr
