"""Turn untrusted bytes into a plain JSON object, or say exactly where they are not one.

`json.loads` alone is too kind for a document that steers traffic: it takes `NaN`, lets the last of
two equal keys win, and turns ``1e999`` into infinity. Such values become markers while parsing, and
one walk over the result reports each marker with its dotted path.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from controlplane.core.validation import MAX_PROBLEMS, join_path, shorten
from controlplane.model.documents import MAX_DOCUMENT_BYTES
from controlplane.model.problems import Problem, Rejected

MAX_DEPTH: Final = 32
"""Nesting of lists and objects; the deepest field of a document is at 4."""

MAX_INTEGER_DIGITS: Final = 18
"""Every such integer fits 64 bits with sign."""


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Stands where a value was that JSON allows and a document must not have."""

    reason: str
    value: str = ""


def read_object(body: bytes) -> dict[str, Any] | Rejected:
    """Parse one JSON object. Never raises, whatever the bytes."""
    if len(body) > MAX_DOCUMENT_BYTES:
        return _rejected(f"has {len(body)} bytes, the limit is {MAX_DOCUMENT_BYTES}")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        return _rejected(f"is not UTF-8: byte {error.start} is not text")
    parsed = _parse(text)
    if isinstance(parsed, Rejected):
        return parsed
    if not isinstance(parsed, dict):
        return _rejected(
            "is not a JSON object", shorten(parsed) if not isinstance(parsed, list) else "a list"
        )
    problems = tuple(problem for problem, _ in zip(_flaws(parsed), range(MAX_PROBLEMS), strict=False))
    return Rejected(problems) if problems else parsed


def _rejected(reason: str, value: str = "") -> Rejected:
    return Rejected((Problem(path="", reason=reason, value=value),))


def _parse(text: str) -> Any:  # noqa: ANN401 - any JSON value, or Rejected
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=lambda name: _Flaw("is not a finite number", name),
        )
    except json.JSONDecodeError as error:
        return _rejected(f"is not JSON: {error.msg} at line {error.lineno} column {error.colno}")
    except RecursionError:
        return _rejected(f"is nested deeper than {MAX_DEPTH} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        result[key] = _Flaw("appears twice") if key in result else value
    return result


def _integer(text: str) -> int | _Flaw:
    if len(text.lstrip("-")) > MAX_INTEGER_DIGITS:
        return _Flaw(f"has more than {MAX_INTEGER_DIGITS} digits", text[:12] + "…")
    return int(text)


def _float(text: str) -> float | _Flaw:
    value = float(text)
    return value if math.isfinite(value) else _Flaw("is not a finite number", text[:24])


def _flaws(document: dict[str, Any]) -> Iterator[Problem]:
    """Walk without recursion, depth bounded, in document order."""
    waiting: list[tuple[str, Any, int]] = [("", document, 1)]
    while waiting:
        path, value, depth = waiting.pop()
        if isinstance(value, _Flaw):
            yield Problem(path, value.reason, value.value)
        elif isinstance(value, str):
            if not _is_unicode(value):
                yield Problem(path, "has a lone surrogate, which is not text")
        elif isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                yield Problem(path, f"is nested deeper than {MAX_DEPTH} levels")
                continue
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            for key, item in reversed(items):
                if isinstance(key, str) and not _is_unicode(key):
                    yield Problem(path, "has a key with a lone surrogate, which is not text")
                else:
                    waiting.append((join_path(path, key), item, depth + 1))


def _is_unicode(text: str) -> bool:
    """Tell whether the text can be written as UTF-8: JSON can escape half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
