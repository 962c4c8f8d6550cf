"""Plays an engine in real time: its tokens reach those who wait for them when they are due.

A timer of the event loop, not a task: between two tokens there is nothing to cancel and nothing to
leak. Should the loop be late, the engine's own times stay exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from controlplane.sim.engine import Engine, Fault, Job, Token


class Conductor:
    """Drives one engine on the running event loop."""

    def __init__(self, engine: Engine) -> None:
        """Make it inside the loop that will play it."""
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._flows: dict[int, asyncio.Queue[Token]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def play(self, job: Job) -> AsyncGenerator[list[Token], None]:
        """Yield the tokens of one request, as many at a time as are due, until its last.

        Close the iterator early to take the request back.

        Raises:
            ValueError: if the request can never fit.
        """
        job_id = self._engine.submit(job, self._loop.time())
        # Bounded by the request's own output_tokens.
        flow = self._flows[job_id] = asyncio.Queue()
        try:
            self._pump()
            while True:
                due = [await flow.get()]
                while not flow.empty():
                    due.append(flow.get_nowait())
                yield due
                if due[-1].is_last:
                    return
        finally:
            del self._flows[job_id]
            self._engine.cancel(job_id, self._loop.time())
            self._pump()

    def set_fault(self, fault: Fault) -> None:
        """Change what is wrong with the engine."""
        self._engine.set_fault(fault, self._loop.time())
        self._pump()

    def stop(self) -> None:
        """Let no more tokens out."""
        if self._timer is not None:
            self._timer.cancel()

    def _pump(self) -> None:
        for token in self._engine.advance(self._loop.time()):
            if token.job_id in self._flows:
                self._flows[token.job_id].put_nowait(token)
        if self._timer is not None:
            self._timer.cancel()
        wake_at = self._engine.wake_at
        self._timer = None if wake_at is None else self._loop.call_at(wake_at, self._pump)
