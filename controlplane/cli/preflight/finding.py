"""What a check found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Mark(enum.StrEnum):
    """How a check went."""

    GOOD = "√"
    WARNING = "‼"
    BAD = "×"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `hint` says what to do about it."""

    mark: Mark
    subject: str
    text: str
    hint: str = ""
