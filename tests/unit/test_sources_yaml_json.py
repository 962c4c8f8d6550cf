"""YAML read as JSON: strictly, and back again."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.sources.yaml_json import dump, load, to_json

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from(" \n:-#'\"0e1"), max_size=8)
    | st.sampled_from(
        ["no", "1e3", "0o7", "1:30", "2026-01-01", "~", "", ".inf", "<<", "=", "1_000", "010"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abn01e~", max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(value=JSON)
def test_what_is_written_reads_back_equal(value: Any) -> None:
    assert load(dump(value)) == value


@settings(max_examples=80)
@given(value=JSON)
def test_json_is_yaml(value: Any) -> None:
    assert json.loads(to_json(json.dumps(value, ensure_ascii=False).encode())) == value


@settings(max_examples=150)
@given(text=st.binary(max_size=60) | st.text("{}[]:,-&*!|>'\"#%@\n\t ab01", max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with contextlib.suppress(ValueError):
        json.dumps(load(text), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", "no"),
        ("a: 1:30", "1:30"),
        ("a: 2026-01-01", "2026-01-01"),
        ("a: 010", 10),
        ("a: 0o10", 8),
        ("a: 1_000", "1_000"),
        ("a: 1e3", 1000.0),
        ("a: ~", None),
        ("a:", None),
        ('a: "1"', "1"),
        ("a: |\n  1\n", "1\n"),
        ("\ufeffa: True", True),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    assert load(text.encode()) == {"a": value}


@pytest.mark.fault("R13")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"a: &x [1]\nb: *x", "anchors and aliases are refused at line 1"),
        (b"a: 1\na: 2", "the key `a` is repeated at line 2"),
        (b"1: 2", "a key that is not a string"),
        (b"[a]: 2", "a key that is not a string"),
        (b"a: .nan", "not a finite number"),
        (b"a: -.inf", "not a finite number"),
        (b"a: 1e999", "not a finite number"),
        (b"a: !!python/object:os.system x", "the tag"),
        (b"a: !!set {x}", "the tag"),
        (b"---\na: 1\n---\nb: 1", "2 documents"),
        (b"", "0 documents"),
        (b"a: [", "not YAML"),
        (b"\xff", "not UTF-8"),
        (b"a: \x00", "not YAML"),
        (b"a: " + b"9" * 10_000, "digits"),
    ],
)
def test_what_is_no_json_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load(text)


@pytest.mark.fault("R13")
@pytest.mark.parametrize("text", [b"[" * 100_000, b"{a: " * 50_000, b"- " * 100_000, b"? " * 50_000])
def test_deep_nesting_is_refused_quickly(text: bytes) -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"nested deeper|not YAML|a key"):
        load(text)
    assert time.monotonic() - started < 2.0
