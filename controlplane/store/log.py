"""The decision log: append-only, checksummed, rotated by size, repaired at start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from controlplane.errors import StoreError
from controlplane.store.aside import put_aside
from controlplane.store.files import FULL, Disk, FileSystem, prepare_folder, reason_of, sync_folder
from controlplane.store.framing import Damage, encode, read, valid_prefix_bytes
from controlplane.store.instruments import Instruments, StoreMetrics
from controlplane.store.ring import MAX_RING_BYTES, Ring

__all__ = ["DecisionLog", "LogLimits", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """How much a log may take, on disk and in memory."""

    max_bytes: int = 64 * 1024 * 1024
    """A file that would grow above this is rotated first."""
    max_files: int = 8
    """Rotated files kept beside the one being written."""
    ring_records: int = 1_000
    """Records kept in memory while the disk refuses writes."""
    ring_bytes: int = MAX_RING_BYTES


class DecisionLog:
    """Keeps what was decided, in order, in ``<name>.log``; then ``<name>.log.1``, the next older.

    `append` never fails because of the disk. While the disk refuses, records wait in a bounded ring
    (the oldest fall out, counted in `lost_records`), `degraded` says why, and the first write that
    works again takes the whole ring along (fault R29).
    """

    def __init__(
        self,
        *,
        directory: Path,
        limits: LogLimits,
        name: str = "decisions",
        files: FileSystem | None = None,
        metrics: StoreMetrics | None = None,
    ) -> None:
        """Open the log, making the directory if needed, and repair what a crash tore.

        Without `metrics`, none are exposed.

        Raises:
            StoreError: if the directory is not usable, or the log cannot be read.
        """
        self.path = directory / f"{name}.log"
        self.degraded = ""
        """Why the disk refuses writes; empty when it does not."""
        self.damages: tuple[Damage, ...] = ()
        """What was put aside since the log was opened."""
        self._limits = limits
        self._ring = Ring(max_records=limits.ring_records, max_bytes=limits.ring_bytes)
        self._files = files or Disk()
        self._size_bytes: int | None = None
        self._log = structlog.get_logger("trimtab.store").bind(log=name)
        metrics = metrics or StoreMetrics(registry=CollectorRegistry())
        self._instruments = Instruments(metrics, log=name)
        prepare_folder(directory)
        try:
            self._repair()
        except OSError as error:
            if error.errno not in FULL:
                raise StoreError(f"`{self.path}`: {reason_of(error)}") from error
            self._degrade(error)

    @property
    def lost_records(self) -> int:
        """Records that fell out of the ring before the disk took them."""
        return self._ring.lost_records

    @property
    def waiting_records(self) -> int:
        """Records in the ring."""
        return len(self._ring)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records in one piece; return when they are on disk, or in the ring.

        Raises:
            ValueError: if a record holds NaN or infinity. Nothing is written then.
            TypeError: if a record holds anything else that is not JSON. Nothing is written then.
        """
        frames = [encode(record) for record in records]
        content = b"".join((*self._ring.frames, *frames))
        try:
            self._write(content)
        except OSError as error:
            self._ring.keep(frames)
            self._degrade(error)
        else:
            self._recover()
        self._instruments.observe(waiting=len(self._ring), lost=self._ring.lost_records)

    def read(self, *, on_damage: Callable[[Damage], None] | None = None) -> Iterator[dict[str, Any]]:
        """Yield all good records on disk, oldest first.

        Raises:
            OSError: if a file cannot be read.
        """
        for path in self.paths():
            yield from read(path, on_damage=on_damage)

    def paths(self) -> tuple[Path, ...]:
        """List the log's files, oldest first."""
        numbered = (self._rotated(number) for number in range(self._limits.max_files, 0, -1))
        return tuple(path for path in (*numbered, self.path) if path.exists())

    def _write(self, content: bytes) -> None:
        if not content:
            return
        size = self._settle()
        if size and size + len(content) > self._limits.max_bytes:
            self._rotate()
            size = 0
        with self._instruments.append_seconds.time():
            self._files.append(self.path, content)
        self._size_bytes = size + len(content)

    def _settle(self) -> int:
        """Make sure that the file ends in a whole record; give its size."""
        known, size = self._size_bytes, self._size_on_disk()
        if known is not None and size > known and self.degraded:
            # The failed write could not be taken back; its records are in the ring.
            os.truncate(self.path, known)
        elif size != known:
            self._repair()
        return self._size_bytes or 0

    def _rotate(self) -> None:
        for number in range(self._limits.max_files - 1, 0, -1):
            if self._rotated(number).exists():
                self._rotated(number).replace(self._rotated(number + 1))
        self.path.replace(self._rotated(1))
        self._size_bytes = 0
        sync_folder(self.path.parent)

    def _rotated(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _size_on_disk(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def _repair(self) -> None:
        """Keep the valid prefix; put the rest aside, where a person can look at it (fault R30).

        The rest is copied and synced before it is cut off: a crash in between repeats the copy.
        """
        size = self._size_on_disk()
        end = valid_prefix_bytes(self.path) if size else 0
        if end < size:
            aside = put_aside(self.path, offset=end, files=self._files)
            os.truncate(self.path, end)
            self.damages = (*self.damages, Damage(self.path, end, size - end, is_tail=True))
            self._instruments.damaged_bytes.inc(size - end)
            self._log.error("log_repaired", kept_bytes=end, damaged_bytes=size - end, aside=aside.name)
        self._size_bytes = end

    def _degrade(self, error: OSError) -> None:
        reason = reason_of(error)
        if not self.degraded:
            self._log.error("store_degraded", reason=reason)
        self.degraded = reason

    def _recover(self) -> None:
        if self.degraded:
            self._log.warning("store_recovered", records=len(self._ring), lost=self._ring.lost_records)
        self._ring.clear()
        self.degraded = ""
