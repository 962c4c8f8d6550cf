"""Which of two versions comes first (semver.org, 2.0.0, section 11)."""

from __future__ import annotations

from typing import TypeAlias

Precedence: TypeAlias = tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]


def precedence(version: str) -> Precedence:
    """Give a key that sorts versions by precedence. Build metadata does not count.

    Numbers first, then: a pre-release comes before its release; its identifiers compare one by one,
    numeric ones as numbers and before the others; fewer come before more.
    """
    core, _, pre_release = version.partition("+")[0].partition("-")
    identifiers = pre_release.split(".") if pre_release else []
    return (
        tuple(int(number) for number in core.split(".")),
        not identifiers,
        tuple((not each.isdecimal(), int(each) if each.isdecimal() else 0, each) for each in identifiers),
    )


def is_downgrade(old: str, new: str) -> bool:
    """Tell whether `new` comes before `old`."""
    return precedence(new) < precedence(old)
