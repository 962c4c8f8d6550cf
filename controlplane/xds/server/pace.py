"""How fast one stream may ask."""

from __future__ import annotations


class TokenBucket:
    """`rate` requests a second on average, `burst` at once. Time is an argument."""

    __slots__ = ("_burst", "_rate", "_tokens", "_updated_at")

    def __init__(self, *, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated_at = now

    def take(self, now: float) -> float:
        """Take one token, on credit if need be, and give the seconds to wait before the next."""
        self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._rate) - 1.0
        self._updated_at = now
        return max(0.0, -self._tokens / self._rate)
