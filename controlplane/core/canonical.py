"""One canonical form per document: what is hashed, compared and printed.

Fields at their default are left out, so that a document that spells a default out equals one that
does not, and a new field (with a default) leaves the hashes of existing documents alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from controlplane.model.rollout import CanarySpec
from controlplane.model.strategy import Strategy

_EXACT_INTEGERS = 2**53
"""Below this, a float without a fraction and the integer are the same number."""


def document_hash(spec: Strategy | CanarySpec) -> str:
    """Hash a document's content, 16 hexadecimal digits.

    Key order, YAML or JSON, ``1`` or ``1.0``, and spelled-out defaults make no difference.
    """
    text = json.dumps(_canonical(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def to_json(spec: Strategy | CanarySpec) -> str:
    """Write a document as people would: indented, fields in their documented order, defaults left out.

    Parsing the text gives an equal document.
    """
    return json.dumps(_canonical(spec), indent=2, ensure_ascii=False) + "\n"


def _canonical(spec: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass of the document model
    return {
        each.name: _plain(getattr(spec, each.name))
        for each in fields(spec)
        if getattr(spec, each.name) != _default(each)
    }


def _default(each: Field[Any]) -> object:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a document
    if is_dataclass(value):
        return _canonical(value)
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_INTEGERS:
        return int(value)
    return value
