"""The demo as a process: it starts everything, shows it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.process import eventually

pytestmark = pytest.mark.envoy


def left_running(mark: str) -> list[str]:
    """Command lines of living processes that mention `mark`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_demo_ends_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    demo = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controlplane",
        "demo",
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        # Given a demo that plays: model servers, Trimtab and Envoy run, and load reaches them.
        assert demo.stderr is not None
        async with asyncio.timeout(60):
            assert "equal weights" in (await demo.stderr.readline()).decode()
        assert any("envoy" in line for line in left_running(str(tmp_path)))

        # When it is interrupted
        demo.send_signal(number)

        # Then it says so with its exit code, and nothing of it goes on.
        async with asyncio.timeout(30):
            await demo.stderr.read()
            assert await demo.wait() == 130

        async def is_alone() -> bool:
            return not left_running(str(tmp_path))

        await eventually(is_alone)
    finally:
        if demo.returncode is None:
            demo.terminate()
            await demo.wait()
