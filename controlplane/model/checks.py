"""Checks that several document classes share."""

from __future__ import annotations

_FIRST_PRINTABLE, _DELETE = 0x20, 0x7F


def check_text(**texts: str) -> None:
    """Refuse control characters in what goes into an HTTP header, path or host name.

    Envoy refuses such a text together with the whole resource that has it; for a route that is every
    service's routes.

    Raises:
        ValueError: names the first text that has one.
    """
    for name, text in texts.items():
        if any(ord(character) < _FIRST_PRINTABLE or ord(character) == _DELETE for character in text):
            msg = f"`{name}` has a control character"
            raise ValueError(msg)
