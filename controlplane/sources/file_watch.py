"""Watch files: woken by the kernel where it can, and by a clock where it cannot.

Network and overlay file systems deliver no events, and a watch on a folder that was deleted and made
again is dead; so everything is also looked at every few seconds. Content decides what is a change.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import structlog
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

from controlplane.errors import SourceError, SourceUnreachable
from controlplane.sources.blocking import DEBOUNCE_LIMIT_SECONDS, DEBOUNCE_QUIET_SECONDS
from controlplane.sources.fuse import Fuse

T = TypeVar("T")

SOURCE = "files"
RESCAN_SECONDS = 5.0
MISSING_SECONDS = 1.0
"""Time between looks for a path that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[T]):
    """What was read. `identity` is what counts as content, `notes` are worth a line in the log."""

    content: T
    identity: object
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPath:
    """A folder to watch, with the part of it whose changes are of no interest."""

    folder: Path
    is_recursive: bool
    ignored: Path | None = None
    rescan_seconds: float = RESCAN_SECONDS


async def watch_loaded(
    load: Callable[[], Loaded[T]], *, path: WatchedPath, fuse: Fuse
) -> AsyncGenerator[T, None]:
    """Yield what `load` reads, once it can be read and then whenever its identity changes.

    `load` runs in a thread. When it raises `SourceError`, nothing is yielded and the fuse is told.
    """
    log = structlog.get_logger().bind(source=fuse.name)
    last: Loaded[T] | None = None
    async with contextlib.aclosing(_wakeups(path)) as wakeups:
        async for _ in wakeups:
            try:
                loaded = await asyncio.to_thread(load)
            except SourceError as error:
                fuse.record_failure(error.reason)
                continue
            fuse.record_success()
            if last is not None and loaded.identity == last.identity:
                continue
            last = loaded
            for note in loaded.notes:
                log.warning("file_problem", reason=note)
            yield loaded.content


def read_capped(path: Path, limit_bytes: int) -> bytes | None:
    """Read a file, at most one byte more than the limit; `None` if there is no such regular file.

    Raises:
        SourceUnreachable: if it is there and cannot be read.
    """
    try:
        if not path.is_file():  # a pipe would block, a dangling link is no file
            return None
        with path.open("rb") as opened:
            return opened.read(limit_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceUnreachable(SOURCE, f"cannot read `{path}`: {error.strerror}") from error


def revision_of(raw: bytes) -> int:
    """Give a file's revision: a positive number that changes with its bytes."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=7).digest()) + 1


async def _wakeups(path: WatchedPath) -> AsyncGenerator[None, None]:
    """Yield at once, then whenever something may have changed; goes on if the folder comes and goes."""
    while True:
        identity = _identity(path.folder)
        if identity is None:
            yield
            await asyncio.sleep(MISSING_SECONDS)
            continue
        events = _events(path)
        try:
            while _identity(path.folder) == identity:
                step = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0)  # the watch begins here: what changes after this look is seen
                try:
                    yield
                    await step
                finally:
                    step.cancel()
                    await asyncio.wait({step})
        except (OSError, WatchfilesRustInternalError):
            await asyncio.sleep(MISSING_SECONDS)  # no watch to be had now, such as out of inotify watches
            yield
        finally:
            await events.aclose()


def _events(path: WatchedPath) -> AsyncGenerator[object, None]:
    def is_of_interest(_change: watchfiles.Change, name: str) -> bool:
        return path.ignored is None or not Path(name).is_relative_to(path.ignored)

    return watchfiles.awatch(
        path.folder,
        watch_filter=is_of_interest,
        debounce=round(DEBOUNCE_LIMIT_SECONDS * 1000),
        step=round(DEBOUNCE_QUIET_SECONDS * 1000),
        rust_timeout=round(path.rescan_seconds * 1000),
        yield_on_timeout=True,
        recursive=path.is_recursive,
    )


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
