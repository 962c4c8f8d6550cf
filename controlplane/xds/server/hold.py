"""Waiting for a condition, but not for ever."""

from __future__ import annotations


class Hold:
    """Hold something back while it is blocked, at most `limit_seconds`.

    Once the limit has passed it stays open until the blockage ends: a client that never answers is
    waited for once, not at every step.
    """

    __slots__ = ("_limit_seconds", "_since")

    def __init__(self, *, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._since: float | None = None

    def until(self, now: float, *, is_blocked: bool) -> float | None:
        """Give the time to wait for at most; `None`: go ahead now."""
        if not is_blocked:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        end = self._since + self._limit_seconds
        return end if now < end else None
