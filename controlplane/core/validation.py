"""Check plain JSON values against the model's dataclasses; findings are values, not exceptions."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from controlplane.model.problems import Problem, Rejected

T = TypeVar("T")

MAX_PROBLEMS = 20
"""Problems reported at once: enough to repair a document, few enough for one screen."""

_SHORT = 60


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """Build the validator of a dataclass, once per process: it costs about 10 ms."""
    key: Any = kind  # mypy does not take a class with an unknown metaclass for hashable
    return _adapter(key)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - a cache cannot be generic
    return TypeAdapter(kind)


def validate(kind: type[T], document: Mapping[str, Any], *, prefix: str = "") -> T | Rejected:
    """Read a document as `kind`, strictly: no text for numbers, no unknown fields.

    The document is handed to pydantic as JSON, because its strict mode takes lists for tuples only
    there. `prefix` is the dotted path of the document inside a larger one.
    """
    try:
        return adapter(kind).validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False)[:MAX_PROBLEMS]
        return Rejected(tuple(_problem(detail, prefix) for detail in found))


def shorten(value: object) -> str:
    """Render a value for a message, at most 60 characters."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def join_path(*parts: object) -> str:
    """Join the parts of a path with dots, leaving out empty ones."""
    return ".".join(text for part in parts if (text := str(part)))


def _problem(detail: ErrorDetails, prefix: str) -> Problem:
    is_absent = detail["type"] == "missing"
    return Problem(
        path=join_path(prefix, *detail["loc"]),
        reason=detail["msg"].removeprefix("Value error, "),
        value="" if is_absent else shorten(detail["input"]),
    )
