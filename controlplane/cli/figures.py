"""Numbers and states as people read them."""

from __future__ import annotations

from controlplane.cli.output import Cell

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0

_STYLES = {
    "ok": "green",
    "synced": "green",
    "normal": "green",
    "pass": "green",
    "promoted": "green",
    "active": "green",
    "warming": "cyan",
    "progressing": "cyan",
    "starting": "cyan",
    "promoting": "cyan",
    "rising": "cyan",
    "stale": "yellow",
    "no data": "yellow",
    "no_data": "yellow",
    "not sent": "yellow",
    "held": "yellow",
    "fading": "yellow",
    "paused": "yellow",
    "draining": "yellow",
    "degraded": "yellow",
    "falling": "yellow",
    "nacked": "bold red",
    "emergency": "bold red",
    "unhealthy": "red",
    "rejected": "bold red",
    "fail": "bold red",
    "error": "red",
    "rolling_back": "bold red",
    "rolled_back": "red",
    "failed_config": "bold red",
}

_ARROWS = {"rising": "↑", "falling": "↓", "steady": "→"}


def state(word: str | None) -> Cell:
    """A state with its colour."""
    text = word or ""
    return Cell(text, _STYLES.get(text.lower(), ""))


def trend(word: str | None) -> Cell:
    """Where a weight is heading, as an arrow."""
    return Cell(_ARROWS.get(word or "", ""), _STYLES.get(word or "", ""))


def duration(seconds: float | None) -> str:
    """A length of time with two units at most; empty if unknown."""
    if seconds is None:
        return ""
    if seconds < _MINUTE:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if seconds < _HOUR:
        return f"{whole // 60}m{whole % 60:02d}s"
    if seconds < _DAY:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def percent(ratio: float | None) -> str:
    """A share as per cent; empty if unknown."""
    return "" if ratio is None else f"{100.0 * ratio:.2f}%"


def number(value: float | None) -> str:
    """A figure with four significant digits; empty if unknown."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def short(version: str) -> str:
    """The part of a hash that tells versions apart."""
    return version[:12]
