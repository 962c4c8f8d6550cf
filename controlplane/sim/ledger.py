"""Who asked a simulated server, and how often."""

from __future__ import annotations

from collections import OrderedDict

MAX_SESSIONS = 10_000


class Ledger:
    """Counts requests, failures and sessions; the least recently seen sessions are forgotten."""

    def __init__(self, *, max_sessions: int = MAX_SESSIONS) -> None:
        self.requests = 0
        self.errors = 0
        self.sessions: OrderedDict[str, int] = OrderedDict()
        """Session → its requests."""
        self._max_sessions = max_sessions

    def count(self, session: str) -> None:
        """Note a request; `session` is empty if it names none."""
        self.requests += 1
        if not session:
            return
        self.sessions[session] = self.sessions.get(session, 0) + 1
        self.sessions.move_to_end(session)
        if len(self.sessions) > self._max_sessions:
            self.sessions.popitem(last=False)
