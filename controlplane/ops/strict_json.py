"""Strict JSON: what any parser accepts. Python's `json` writes ``NaN`` and ``Infinity``: no JSON."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np


def plain(value: Any) -> Any:  # noqa: ANN401, PLR0911 - any value of the model; one return for each kind
    """Turn a value of the model into JSON types. NaN and ±Inf become `None`: unknown is never zero.

    Numbers keep their type, so a weight of 1 stays ``1`` and a share of 0 stays ``0.0``. Mapping keys
    become text, sets become sorted lists.

    Raises:
        TypeError: for a type that has no JSON form.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, Path)):  # before the numbers: a `StrEnum` is text
        return str(value)
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(plain(item) for item in value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    msg = f"`{type(value).__name__}` has no JSON form"
    raise TypeError(msg)


def encode(value: Any) -> bytes:  # noqa: ANN401 - any value of the model
    """Write a value of the model as strict, ASCII-only JSON (a lone surrogate is escaped, not an error)."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode("ascii")
