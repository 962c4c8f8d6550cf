"""Disks that misbehave as real ones do."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

from structlog.testing import capture_logs

from controlplane.store.files import Disk


@contextlib.contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """No file may grow above this: the kernel takes part of a write, then refuses (EFBIG).

    Log events are caught meanwhile: standard output may be a file too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        with capture_logs():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing in the folder may be changed; root drops its privilege meanwhile."""
    paths = [folder, *folder.iterdir()]
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(stat.S_IREAD | (stat.S_IEXEC if path.is_dir() else 0) | 0o055)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)


class FullDisk(Disk):
    """A disk without room while `is_full`: the kernel's own ENOSPC, from ``/dev/full``."""

    def __init__(self) -> None:
        self.is_full = True

    def append(self, path: Path, content: bytes) -> None:
        """Append, if there is room."""
        self._write_to_full()
        super().append(path, content)

    def replace(self, path: Path, content: bytes, *, keep: Path | None = None) -> None:
        """Replace, if there is room."""
        self._write_to_full()
        super().replace(path, content, keep=keep)

    def _write_to_full(self) -> None:
        if self.is_full:
            with Path("/dev/full").open("wb", buffering=0) as device:
                device.write(b"x")


class TornDisk(Disk):
    """A disk that takes the first bytes of the next write and then fails for good, tail and all."""

    def __init__(self, *, tear_after_bytes: int) -> None:
        self._tear_after_bytes: int | None = tear_after_bytes

    def append(self, path: Path, content: bytes) -> None:
        """Append; the first time, leave a torn tail behind."""
        if self._tear_after_bytes is None:
            super().append(path, content)
            return
        super().append(path, content[: self._tear_after_bytes])
        self._tear_after_bytes = None
        raise OSError(5, "Input/output error")
