"""Where the unexpected is caught: once, with its trace, counted, and never swallowed silently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter

from controlplane.runtime.clock import jitter

Result = TypeVar("Result")

_RESTART_MIN_SECONDS = 1.0
_RESTART_MAX_SECONDS = 60.0


class Supervisor:
    """Runs what must not take the rest down when it breaks."""

    def __init__(self, *, registry: CollectorRegistry) -> None:
        self._log = structlog.get_logger("trimtab.supervisor")
        self._failures = Counter(
            "trimtab_unexpected_errors_total",
            "Unexpected errors that were contained, by the part that failed.",
            ["part"],
            registry=registry,
        )

    def guarded(self, part: str, compute: Callable[[], Result]) -> Result | None:
        """Compute one service's part of a tick; `None` if it raised."""
        try:
            return compute()
        except Exception:  # noqa: BLE001 - the one place where the unexpected is contained
            self._count("decide", service=part)
            return None

    async def keep_running(self, part: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a task that has no end; start it again after an unexpected error, slower each time."""
        delay_seconds = _RESTART_MIN_SECONDS
        while True:
            try:
                await run()
            except Exception:  # noqa: BLE001 - the same, for tasks without an end
                self._count(part, restart_in_seconds=delay_seconds)
            else:
                return
            await asyncio.sleep(delay_seconds * (0.5 + jitter()))
            delay_seconds = min(2 * delay_seconds, _RESTART_MAX_SECONDS)

    def _count(self, part: str, **facts: object) -> None:
        self._failures.labels(part).inc()
        self._log.exception("unexpected_error", part=part, **facts)
