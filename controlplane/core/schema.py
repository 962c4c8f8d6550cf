"""JSON Schema of the documents, for editors and for `trimtab strategy schema`."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python

from controlplane.core.strategies import BUILTIN, Registry
from controlplane.core.validation import adapter
from controlplane.model.rollout import CanarySpec
from controlplane.model.strategy import Strategy


class _Generator(GenerateJsonSchema):
    """Write defaults as plain JSON, whatever their class's configuration."""

    def encode_default(self, dft: object) -> Any:  # noqa: ANN401 - overrides pydantic's signature
        return to_jsonable_python(dft)


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: Literal["strategy", "canary"], *, registry: Registry = BUILTIN) -> dict[str, Any]:
    """Describe a kind of document, with the parameters of every law in `registry`."""
    model: type[Any] = Strategy if kind == "strategy" else CanarySpec
    schema = {
        "$schema": _DIALECT,
        "$id": f"urn:trimtab:schema:{kind}:1",
        **adapter(model).json_schema(schema_generator=_Generator),
        "title": f"Trimtab {kind}",
    }
    return _with_laws(schema, registry) if kind == "strategy" else schema


def _with_laws(schema: dict[str, Any], registry: Registry) -> dict[str, Any]:
    """Tie `parameters` to `law`: one condition for each law."""
    definitions = dict(schema.get("$defs", {}))
    conditions: list[dict[str, Any]] = []
    default = schema["properties"]["law"].get("default")
    for name in registry.names:
        law = registry.laws[name]
        parameters = adapter(law.parameters).json_schema(schema_generator=_Generator)
        definitions.update(parameters.pop("$defs", {}))
        definitions[law.parameters.__name__] = parameters
        chosen: dict[str, Any] = {"properties": {"law": {"const": name}}}
        if name != default:
            chosen["required"] = ["law"]
        reference = {"$ref": f"#/$defs/{law.parameters.__name__}"}
        conditions.append({"if": chosen, "then": {"properties": {"parameters": reference}}})
    law_field = {**schema["properties"]["law"], "enum": list(registry.names)}
    return {
        **schema,
        "properties": {**schema["properties"], "law": law_field},
        "$defs": definitions,
        "allOf": conditions,
    }
