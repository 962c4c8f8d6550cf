"""What is wrong with an input, as a value: bad input is expected, so it is not an exception."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a document was refused.

    `path` is a dotted path inside the document (``guards.tau_down_seconds``; empty for the whole
    document), `value` a short rendering of the offending value (empty when there is none).
    """

    path: str
    reason: str
    value: str = ""

    def __str__(self) -> str:
        """Render as one line: path, reason, value."""
        where = self.path or "document"
        return f"{where}: {self.reason}" + (f" (got {self.value})" if self.value else "")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A document that was refused whole. `problems` is never empty."""

    problems: tuple[Problem, ...]

    def __post_init__(self) -> None:
        """Refuse a rejection without a reason.

        Raises:
            ValueError: if there is no problem.
        """
        if not self.problems:
            msg = "a rejection needs at least one problem"
            raise ValueError(msg)

    def __str__(self) -> str:
        """Join the problems into one line."""
        return "; ".join(str(problem) for problem in self.problems)
