"""How a source is doing."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FuseState(enum.StrEnum):
    """A source is used normally, or only its cached values are."""

    NORMAL = "normal"
    DEGRADED = "degraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """A source's fuse, for metrics, `check` and `status`. Times are monotonic seconds."""

    name: str
    state: FuseState
    since_seconds: float
    last_success_seconds: float | None
    consecutive_failures: int
    last_error: str
