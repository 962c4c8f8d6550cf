"""Records that wait in memory while the disk refuses them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

MAX_RING_BYTES = 64 * 1024 * 1024


class Ring:
    """Keeps the newest framed records, bounded by number and by size; counts what fell out."""

    def __init__(self, *, max_records: int, max_bytes: int = MAX_RING_BYTES) -> None:
        self.lost_records = 0
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._max_records = max_records
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def frames(self) -> tuple[bytes, ...]:
        """What waits, oldest first."""
        return tuple(self._frames)

    def keep(self, frames: Sequence[bytes]) -> None:
        """Add records; the oldest make room. One larger than the whole ring is lost itself."""
        for frame in frames:
            self._frames.append(frame)
            self._bytes += len(frame)
            while len(self._frames) > self._max_records or self._bytes > self._max_bytes:
                self._bytes -= len(self._frames.popleft())
                self.lost_records += 1

    def clear(self) -> None:
        """Forget what waits: it is on disk now."""
        self._frames.clear()
        self._bytes = 0
