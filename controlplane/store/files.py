"""The few durable writes the store needs, behind a port, so that a disk's faults can be scripted."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

from controlplane.errors import StoreError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a disk without room answers: it may have some later."""

_FOLDER_MODE = 0o750
_FILE_MODE = 0o640


class FileSystem(Protocol):
    """Durable writes. Both raise `OSError` as the machine does."""

    def append(self, path: Path, content: bytes) -> None:
        """Append in one write and wait until it is on disk; on failure, leave nothing of it behind."""
        ...

    def replace(self, path: Path, content: bytes, *, keep: Path | None = None) -> None:
        """Replace a file: readers see the old content or the new, never part of one.

        `keep` is where the old file goes, if there was one. A failure to write touches neither.
        """
        ...


class Disk:
    """The machine's file system."""

    def append(self, path: Path, content: bytes) -> None:
        """Append and sync.

        A failed sync counts as nothing written: Linux may have dropped the pages and will call the
        next sync a success.
        """
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            size = os.fstat(file).st_size
            try:
                write_all(file, content)
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)
        if not size:
            sync_folder(path.parent)

    def replace(self, path: Path, content: bytes, *, keep: Path | None = None) -> None:
        """Write a draft, sync it, rename it over the file, sync the folder."""
        draft = path.with_name(path.name + ".draft")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        try:
            write_all(file, content)
            os.fsync(file)
        finally:
            os.close(file)
        if keep is not None and path.exists():
            path.replace(keep)
        draft.replace(path)
        sync_folder(path.parent)


def write_all(file: int, content: bytes) -> None:
    """Write everything: the kernel may take a part only, and tell why at the next call.

    Raises:
        OSError: as the machine does.
    """
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable: a synced file may lose its name in a crash.

    Raises:
        OSError: as the machine does.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prepare_folder(folder: Path) -> None:
    """Make the state directory, and prove that files can be made in it.

    A full disk is no reason to refuse: there may be room later, and serving does not depend on it.

    Raises:
        StoreError: if it is no directory, or not writable.
    """
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        if error.errno not in FULL:
            raise StoreError(f"`{folder}`: {reason_of(error)}") from error


def reason_of(error: OSError) -> str:
    """Say what the machine said, in its words."""
    return error.strerror or type(error).__name__
