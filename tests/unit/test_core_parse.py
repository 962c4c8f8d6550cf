"""Documents: what is taken, what is refused and with which words, and equality of content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.parse import (
    document_hash,
    json_schema,
    parse_canary,
    parse_strategy,
    strategy_from_mapping,
    to_json,
)
from controlplane.core.strategies import BUILTIN
from controlplane.model.documents import MAX_DOCUMENT_BYTES
from controlplane.model.problems import Rejected
from controlplane.model.rollout import CanarySpec
from controlplane.model.strategy import Strategy

KEY = "trimtab/v1/strategies/chat"
MINIMAL = {"schema": 1, "version": "1.0.0"}


def problems(document: object) -> dict[str, str]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    parsed = parse_strategy(body, key=KEY)
    assert isinstance(parsed, Rejected), parsed
    return {problem.path: problem.reason for problem in parsed.problems}


def accepted(document: dict[str, Any]) -> Strategy:
    parsed = parse_strategy(json.dumps(document).encode(), key=KEY)
    assert isinstance(parsed, Strategy), str(parsed)
    return parsed


@pytest.mark.fault("R13")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe{}", "is not UTF-8"),
        (b"[1]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b"law: capacity", "is not JSON"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 40_000, "nested deeper"),
        (b" " * (MAX_DOCUMENT_BYTES + 1), "the limit is 262144"),
        (b'{"schema": 1,}', "line 1 column"),
    ],
)
def test_a_body_that_is_no_document_is_refused_under_its_key(body: bytes, reason: str) -> None:
    found = problems(body)
    assert list(found) == [""]
    assert reason in found[""]
    assert KEY in found[""]


@pytest.mark.fault("R13")
@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ('"guards": {"hold_seconds": NaN}', "guards.hold_seconds", "not a finite number"),
        ('"guards": {"hold_seconds": -Infinity}', "guards.hold_seconds", "not a finite number"),
        ('"guards": {"hold_seconds": 1e999}', "guards.hold_seconds", "not a finite number"),
        ('"guards": {"min_samples": 99999999999999999999}', "guards.min_samples", "more than 18 digits"),
        ('"guards": {"hold_seconds": 1, "hold_seconds": 2}', "guards.hold_seconds", "appears twice"),
        ('"description": "\\ud800"', "description", "lone surrogate"),
        ('"parameters": {"\\udfff": 1}', "parameters", "lone surrogate"),
        ('"parameters": {"a": ' + "[" * 40 + "]" * 40 + "}", "", "nested deeper than 32"),
        ('"guards": {"hold_seconds": "5"}', "guards.hold_seconds", "valid number"),
        ('"guards": {"hold": 5}', "guards.hold", "Unexpected keyword argument"),
        ('"hash_policy": [{"kind": "header"}]', "hash_policy.0", "needs a name"),
        # Envoy refuses these, and with one of them every service's routes.
        (r'"hash_policy": [{"kind": "header", "name": "a\nb"}]', "hash_policy.0", "`name` has a control"),
        ('"routing": {"domains": ["a.example", "A.example"]}', "routing", "`domains` has one twice"),
        (r'"routing": {"domains": ["a\u0000"]}', "routing", "`domains` has a control"),
        (r'"routing": {"prefix": "/\r"}', "routing", "`prefix` has a control"),
        (r'"routing": {"retry": {"on": ["5xx\u007f"]}}', "routing.retry", "`on` has a control"),
        (r'"health_check": {"path": "/a\nb"}', "health_check", "`path` has a control"),
        ('"limits": {"connect_timeout_seconds": 1e-9}', "limits.connect_timeout_seconds", "0.001"),
        ('"outlier_detection": {"interval_seconds": 1e-9}', "outlier_detection.interval_seconds", "0.001"),
        ('"maglev": {"table_size": 1}', "maglev.table_size", "greater than or equal to 2"),
        ('"maglev": {"table_size": 65536}', "maglev", "not prime"),
        ('"law": "fastest"', "law", "capacity, equal"),
        ('"parameters": {"kappa": 1}', "parameters.kappa", "Unexpected keyword argument"),
        ('"parameters": {"kv_full_ratio": 0}', "parameters.kv_full_ratio", "greater than 0"),
        ('"signals": {"join": "label"}', "signals.join_endpoint_label", "is needed"),
    ],
)
def test_a_flaw_is_named_by_path_and_reason(text: str, path: str, reason: str) -> None:
    found = problems(b'{"schema": 1, "version": "1.0.0", ' + text.encode() + b"}")
    matching = [where for where, why in found.items() if reason in why]
    assert matching
    assert any(where.startswith(path) for where in matching)


@pytest.mark.fault("R14")
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        (
            {"law": "static", "parameters": {"weights": {"10.0.0.1:80": 0}}},
            "parameters.weights.10.0.0.1:80",
        ),
        ({"law": "static", "parameters": {"weights": {"a": 1, "b": -1}}}, "parameters.weights.b"),
        ({"law": "static", "parameters": {"weights": {"a": 99, "b": 1}}}, "parameters"),
        ({"law": "static", "parameters": {"weights": {"a": 500}, "default": 1}}, "parameters"),
        ({"guards": {"clip_max_ratio": 1000}}, "guards.clip_max_ratio"),
    ],
)
def test_a_dangerous_document_is_refused(fields: dict[str, Any], path: str) -> None:
    assert path in problems({**MINIMAL, **fields})


@pytest.mark.parametrize(
    "version", ["1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0 ", "1.0.0\n", "1.\u0660.0"]
)
def test_a_version_that_is_not_semantic_is_refused(version: str) -> None:
    assert "version" in problems({"schema": 1, "version": version})


@pytest.mark.parametrize("version", ["0.0.0", "1.2.3-rc.1+build.5", "10.20.30"])
def test_semantic_versions_are_taken(version: str) -> None:
    assert accepted({"schema": 1, "version": version}).version == version


def test_equal_content_has_equal_hashes_whatever_the_form() -> None:
    first = accepted({**MINIMAL, "guards": {"hold_seconds": 60, "fade_seconds": 30}})
    reordered = accepted({"guards": {"fade_seconds": 30.0, "hold_seconds": 6e1}, **MINIMAL})
    spelled_out = accepted(
        {**MINIMAL, "law": "capacity", "guards": {"hold_seconds": 60, "fade_seconds": 30}}
    )
    other = accepted({**MINIMAL, "guards": {"hold_seconds": 61, "fade_seconds": 30}})
    assert document_hash(first) == document_hash(reordered) == document_hash(spelled_out)
    assert document_hash(first) != document_hash(other)
    assert len(document_hash(first)) == 16


def test_a_hash_stays_the_same_across_releases() -> None:
    assert document_hash(accepted(MINIMAL)) == "9509ef5ea271c5ee"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"law": "static", "parameters": {"weights": {"b": 2, "a": 1}}, "description": "zwölf"},
        {"law": "inverse_p99", "parameters": {"steps": [{"below_seconds": 1, "weight": 2}]}},
        {"outlier_detection": {}, "locality": {"weights": {"a": 1}}, "hash_policy": []},
    ],
)
def test_printed_documents_read_back_equal(fields: dict[str, Any]) -> None:
    spec = accepted({**MINIMAL, **fields})
    again = parse_strategy(to_json(spec).encode(), key=KEY)
    assert again == spec
    assert document_hash(spec) == document_hash(again)
    assert strategy_from_mapping(json.loads(to_json(spec))) == spec


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELD_NAMES = st.sampled_from([*Strategy.__dataclass_fields__, *CanarySpec.__dataclass_fields__])


@pytest.mark.fault("R13")
@given(st.dictionaries(FIELD_NAMES, JSON, max_size=5))
@settings(max_examples=150, deadline=None)
def test_no_json_makes_the_parsers_raise(document: dict[str, Any]) -> None:
    body = json.dumps({**MINIMAL, **document}).encode()
    strategy = parse_strategy(body, key=KEY)
    canary = parse_canary(body, key=KEY)
    for parsed in (strategy, canary):
        assert isinstance(parsed, Strategy | CanarySpec | Rejected)
        if isinstance(parsed, Rejected):
            assert all(problem.reason and len(problem.value) <= 60 for problem in parsed.problems)
            assert len(parsed.problems) <= 20


@pytest.mark.fault("R13")
@given(st.binary(max_size=64))
@settings(max_examples=150)
def test_no_bytes_make_the_parsers_raise(body: bytes) -> None:
    assert isinstance(parse_strategy(body, key=KEY), Rejected)
    assert isinstance(parse_canary(body, key=KEY), Rejected)


def test_a_canary_is_read_and_printed() -> None:
    body = b'{"schema": 1, "canary": {"v": "2"}, "steps": [{"weight_percent": 5}, {"weight_percent": 50}]}'
    spec = parse_canary(body, key="canaries/chat")
    assert isinstance(spec, CanarySpec)
    assert spec.steps[1].weight_percent == 50
    assert parse_canary(to_json(spec).encode(), key="canaries/chat") == spec


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"schema": 1}', "canary"),
        (b'{"schema": 1, "canary": {"v": "2"}, "baseline": {"v": "2"}}', "baseline"),
        (
            b'{"schema": 1, "canary": {"v": "2"}, "steps": [{"weight_percent": 0}]}',
            "steps.0.weight_percent",
        ),
    ],
)
def test_a_canary_that_cannot_run_is_refused(body: bytes, path: str) -> None:
    parsed = parse_canary(body, key="canaries/chat")
    assert isinstance(parsed, Rejected)
    assert parsed.problems[0].path == path


def test_the_schema_describes_every_law_and_resolves() -> None:
    schema = json_schema("strategy")
    assert schema["$id"] == "urn:trimtab:schema:strategy:1"
    assert schema["properties"]["law"]["enum"] == list(BUILTIN.names)
    names = {
        rule["then"]["properties"]["parameters"]["$ref"].removeprefix("#/$defs/")
        for rule in schema["allOf"]
    }
    assert names <= set(schema["$defs"])
    assert schema["$defs"]["CapacityParameters"]["properties"]["max_running"]["description"]
    text = json.dumps(schema, allow_nan=False)
    references = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert references <= set(schema["$defs"])


def test_the_canary_schema_has_a_title() -> None:
    assert json_schema("canary")["title"] == "Trimtab canary"
