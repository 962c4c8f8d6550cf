"""`settings.md`, `strategy.md` and `canary.md`, from the JSON Schema of their dataclasses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from controlplane.cli.reference.markdown import code, page, table
from controlplane.config import ENV_PREFIX, Settings
from controlplane.core.parse import json_schema

Schema = Mapping[str, Any]

_SETTINGS = """
Later sources win: defaults, the TOML file given with `--config`, environment variables, flags. A key's
part before the dot is its table in the file. Lists in a variable are written as in TOML.
"""


def settings_page() -> str:
    """Describe every setting with its key and variable."""
    schema = TypeAdapter(Settings).json_schema()
    parts: list[str] = []
    for name, field in schema["properties"].items():
        section = _resolve(schema, field)
        rows = [
            (
                code(f"{name}.{key}"),
                code(_variable(name, key)),
                _type(schema, each),
                _default(each),
                _text(each),
            )
            for key, each in section["properties"].items()
        ]
        parts += [f"## `[{name}]`", _text(section)]
        parts.append(table(("key", "variable", "type", "default", "meaning"), rows))
    return page("Settings", _SETTINGS, *parts)


def strategy_page() -> str:
    """Describe the strategy document."""
    return _document_page("Strategy document", json_schema("strategy"))


def canary_page() -> str:
    """Describe the canary document."""
    return _document_page("Canary document", json_schema("canary"))


def _document_page(title: str, schema: Schema) -> str:
    kind = "canary" if title.startswith("Canary") else "strategy"
    introduction = (
        "One document for each service, JSON or YAML. Unknown fields are refused. "
        f"`trimtab strategy schema --kind {kind}` prints the JSON Schema."
    )
    parts = [introduction, _text(schema), _fields(schema, schema)]
    for name, definition in _objects(schema):
        parts += [f"## {name}", _text(definition), _fields(schema, definition)]
    return page(title, *parts)


def _objects(schema: Schema) -> Iterator[tuple[str, Schema]]:
    for name, definition in sorted(schema.get("$defs", {}).items()):
        if definition.get("properties"):
            yield name, definition


def _fields(schema: Schema, definition: Schema) -> str:
    required = definition.get("required", ())
    rows = [
        (
            code(name),
            _type(schema, field),
            "**required**" if name in required else _default(field),
            _text(field),
        )
        for name, field in definition["properties"].items()
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _type(schema: Schema, field: Schema) -> str:  # noqa: PLR0911 - one return for each form of schema
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        target = _resolve(schema, field)
        return f"[{name}](#{name.lower()})" if target.get("properties") else _type(schema, target)
    if "const" in field:
        return code(json.dumps(field["const"]))
    if "enum" in field:
        return " or ".join(code(json.dumps(value)) for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(schema, each) for each in field["anyOf"]))
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema, field.get('items', {}))}"
    if kind == "object":
        values = field.get("additionalProperties")
        return f"mapping to {_type(schema, values)}" if isinstance(values, Mapping) else "mapping"
    return f"{kind}{_bounds(field)}"


def _bounds(field: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {field[name]}" for name, sign in signs.items() if name in field]
    return f", {', '.join(found)}" if found else ""


def _default(field: Schema) -> str:
    return code(json.dumps(field["default"], ensure_ascii=False)) if "default" in field else ""


def _text(field: Schema) -> str:
    return str(field.get("description", "")).split("\n\n")[0]


def _resolve(schema: Schema, field: Schema) -> Schema:
    if "$ref" not in field:
        return field
    found: Schema = schema["$defs"][field["$ref"].rpartition("/")[2]]
    return found


def _variable(section: str, key: str) -> str:
    return f"{ENV_PREFIX}{section}__{key}".upper()
