"""The only place that reads a clock or draws a random number."""

from __future__ import annotations

import random
import time
from typing import Protocol


class Clock(Protocol):
    """Time, as the runtime needs it."""

    def monotonic(self) -> float:
        """Seconds on an axis that never jumps: all decisions and intervals use it."""
        ...

    def unix(self) -> float:
        """Seconds since 1970: for records that people read, never for a decision."""
        ...


class SystemClock:
    """The machine's clocks. `continue_from` makes the monotonic axis go on where a checkpoint ended,
    so that ages and deadlines survive a restart; the time in between does not count.
    """

    def __init__(self, *, continue_from: float = 0.0) -> None:
        self._offset = continue_from - time.monotonic()

    def monotonic(self) -> float:
        """Seconds since the first start that the checkpoint knows of."""
        return time.monotonic() + self._offset

    def unix(self) -> float:
        """Seconds since 1970."""
        return time.time()


def jitter() -> float:
    """Draw from [0, 1): spreads retries, decides nothing."""
    return random.random()  # noqa: S311 - not for secrets
