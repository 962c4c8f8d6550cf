"""What the demo showed, and whether it really happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing the demo claims to show, as it was measured."""

    name: str
    is_met: bool
    measured: str


@dataclass(slots=True, kw_only=True)
class Summary:
    """Figures of the whole run, filled act by act."""

    figures: dict[str, float] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def check(self, name: str, *, is_met: bool, measured: str) -> Check:
        """Note one claim and what was measured."""
        found = Check(name=name, is_met=is_met, measured=measured)
        self.checks.append(found)
        return found

    @property
    def is_ok(self) -> bool:
        """Everything that should have happened did."""
        return bool(self.checks) and all(check.is_met for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """All figures and checks, and the verdict, as one strict JSON object."""
        return {
            "schema_version": 1,
            "figures": {name: round(value, 4) for name, value in sorted(self.figures.items())},
            "checks": [
                {"name": check.name, "ok": check.is_met, "measured": check.measured}
                for check in self.checks
            ],
            "ok": self.is_ok,
        }
