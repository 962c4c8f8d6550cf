"""Start a real server for a test, wait until it is ready, and always kill it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 30.0
OUTPUT_BYTES = 16_384


def free_port() -> int:
    """Find a TCP port that nobody listens on; for servers that cannot bind port 0 themselves."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_tool(name: str) -> str:
    """Find a server's program: unpacked under ``.tools/bin``, in the virtualenv, or on the PATH.

    Raises:
        FileNotFoundError: if it is nowhere (`make servers` unpacks the servers).
    """
    folders = [ROOT / ".tools" / "bin", ROOT / ".venv" / "bin", *os.get_exec_path()]
    found = shutil.which(name, path=os.pathsep.join(str(folder) for folder in folders))
    if found is None:
        raise FileNotFoundError(name)
    return found


async def eventually(
    condition: Callable[[], Awaitable[bool]], *, seconds: float = 10.0, interval: float = 0.02
) -> None:
    """Poll `condition` until it holds.

    Raises:
        TimeoutError: if it does not hold in time.
    """
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - the condition is in another process
            await asyncio.sleep(interval)


class Server:
    """A running child process and the last of what it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = bytearray()

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    async def kill(self) -> None:
        """End the server at once, as a crash would; more than once does no harm."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)  # a stopped process would not die of its own
                self.process.kill()
        await self.process.wait()

    async def drain(self) -> None:
        """Keep the last output, so that the child never blocks on a full pipe."""
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(4096):
            self.output += chunk
            del self.output[:-OUTPUT_BYTES]


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str],
    *,
    is_ready: Callable[[], Awaitable[bool]],
    seconds: float = READY_SECONDS,
    environment: dict[str, str] | None = None,
) -> AsyncIterator[Server]:
    """Run `command` until the block ends; `is_ready` is polled before the block begins.

    Raises:
        RuntimeError: if the server ends, or is not ready in time; with the end of its output.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | (environment or {}),
    )
    server = Server(process)
    drain = asyncio.create_task(server.drain())
    try:
        await _wait_until_ready(server, command[0], is_ready, seconds)
        yield server
    finally:
        await server.kill()
        await drain


async def _wait_until_ready(
    server: Server, name: str, is_ready: Callable[[], Awaitable[bool]], seconds: float
) -> None:
    async def is_settled() -> bool:
        return not server.is_running or await is_ready()

    try:
        await eventually(is_settled, seconds=seconds)
    except TimeoutError as error:
        raise RuntimeError(f"{name} is not ready: {server.output.decode(errors='replace')}") from error
    if not server.is_running:
        raise RuntimeError(f"{name} ended: {server.output.decode(errors='replace')}")
