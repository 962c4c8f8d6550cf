"""How one request to a metrics peer went wrong, as a value: one peer's failure is nobody else's."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.StrEnum):
    """What became of a request; the `outcome` label of ``trimtab_signal_requests_total``."""

    OK = "ok"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    STATUS = "status"
    """An HTTP status other than 200."""
    OVERSIZED = "oversized"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Failed:
    """A request without a usable answer. `reason` is for people and holds neither payload nor secret."""

    outcome: Outcome
    reason: str
