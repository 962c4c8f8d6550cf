"""YAML as another spelling of JSON: read strictly, turned into JSON bytes, and written back.

Only the core schema of YAML 1.2 is known (yaml.org/spec/1.2.2, chapter 10.3): ``no`` is a string, ``1:30``
is no number of minutes, a date is a string. Refused are what JSON has not or what hides something:
anchors and aliases (a small file of them unfolds into gigabytes), tags, repeated keys, keys that are
not strings, NaN and infinities, more than one document, and deep nesting.

Values are built here from the parser's events, without PyYAML's constructors: a loop cannot run out of
stack, and nothing of YAML 1.1 comes along.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml

MAX_DEPTH = 64

_NULL = re.compile(r"(?:~|null|Null|NULL)?")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def to_json(text: bytes) -> bytes:
    """Turn one YAML document into JSON.

    Raises:
        ValueError: with a reason for people, if the text is not YAML or holds what is refused.
    """
    return json.dumps(load(text), ensure_ascii=False, allow_nan=False).encode()


def load(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read one YAML document into JSON types.

    Raises:
        ValueError: with a reason for people, if the text is not YAML or holds what is refused.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, if PyYAML was built with it
    builder = _Builder()
    try:
        for event in yaml.parse(text.decode("utf-8-sig"), Loader=loader):
            builder.take(event)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    except yaml.MarkedYAMLError as error:
        where = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"not YAML: {error.problem}{where}") from error
    except yaml.YAMLError as error:
        raise ValueError("not YAML: a character that is not allowed") from error
    return builder.finish()


def load_json(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON as strictly as `load` reads YAML.

    Raises:
        ValueError: with a reason for people, if the text is not JSON or holds what is refused.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def dump(value: object) -> bytes:
    """Write a JSON value as YAML that `load` reads back equal."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return str(text).encode()


class _Builder:
    """Builds one value from YAML events."""

    def __init__(self) -> None:
        self._documents: list[Any] = []
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ValueError(f"anchors and aliases are refused{_where(event)}")
        if isinstance(event, yaml.ScalarEvent):
            self._add(_scalar(event), event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._start(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._keys.pop()

    def finish(self) -> Any:  # noqa: ANN401 - any JSON value
        if len(self._documents) != 1:
            raise ValueError(f"{len(self._documents)} documents instead of one")
        return self._documents[0]

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        if event.tag:
            raise ValueError(f"the tag `{str(event.tag)[:60]}` is refused{_where(event)}")
        if len(self._open) >= MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}{_where(event)}")
        opened: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._add(opened, event)
        self._open.append(opened)
        self._keys.append(None)

    def _add(self, value: Any, event: yaml.Event) -> None:  # noqa: ANN401 - any JSON value
        if not self._open:
            self._documents.append(value)
            return
        parent, key = self._open[-1], self._keys[-1]
        if isinstance(parent, list):
            parent.append(value)
        elif key is not None:
            parent[key] = value
            self._keys[-1] = None
        elif not isinstance(value, str):
            raise ValueError(f"a key that is not a string{_where(event)}")
        elif value in parent:
            raise ValueError(f"the key `{value[:60]}` is repeated{_where(event)}")
        else:
            self._keys[-1] = value


class _Dumper(yaml.SafeDumper):
    """Quotes what either YAML 1.1 or 1.2 would take for something else than a string."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - its base's signature
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(rf"\A{_OCTAL.pattern}\Z"), ["0"])
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(rf"\A{_DECIMAL.pattern}\Z"), [*"+-0123456789"]
)
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"\A{_FLOAT.pattern}\Z"), [*"+-.0123456789"]
)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key is repeated")
    return unique


def _refuse_constant(name: str) -> float:
    raise ValueError(f"`{name}` is not a finite number")


def _scalar(event: yaml.ScalarEvent) -> str | int | float | bool | None:
    text = str(event.value)
    if event.tag:
        raise ValueError(f"the tag `{str(event.tag)[:60]}` is refused{_where(event)}")
    if event.style:  # quoted, or a block
        return text
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    return _number(text, event)


def _number(text: str, event: yaml.Event) -> str | int | float:
    if _DECIMAL.fullmatch(text):
        return int(text)  # raises ValueError itself above some thousand digits
    if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        raise ValueError(f"`{text[:60]}` is not a finite number{_where(event)}")
    return text


def _where(event: yaml.Event) -> str:
    return f" at line {event.start_mark.line + 1}" if event.start_mark else ""
