"""Which documents are in force."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.core.acceptance import Registry, accept, without_canary
from controlplane.model.documents import Documents, RawDocument


def strategy(version: str = "1.0.0", **fields: Any) -> bytes:
    return json.dumps({"schema": 1, "version": version, **fields}).encode()


def canary(**fields: Any) -> bytes:
    return json.dumps({"schema": 1, "canary": {"version": "v2"}, **fields}).encode()


def documents(
    strategies: dict[str, bytes],
    canaries: dict[str, bytes] | None = None,
    **fields: Any,
) -> Documents:
    def raw(kind: str, bodies: dict[str, bytes]) -> dict[str, RawDocument]:
        return {
            service: RawDocument(f"{kind}/{service}", body, revision=index)
            for index, (service, body) in enumerate(bodies.items(), 1)
        }

    return Documents(raw("strategies", strategies), raw("canaries", canaries or {}), **fields)


def problems(registry: Registry, service: str = "chat") -> dict[str, str]:
    refused = registry.strategies.refused[service].rejected
    return {problem.path: problem.reason for problem in refused.problems}


def test_a_good_document_is_in_force() -> None:
    registry = accept(Registry(), documents({"chat": strategy(law="equal")}))
    assert registry.active["chat"].spec.law == "equal"
    assert not registry.strategies.refused


@pytest.mark.fault("R13")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"{", ""),
        (b"[" * 100_000, ""),
        (b" " * 300_000, ""),
        (strategy("1.0.1", guards={"floor_ratio": 7}), "guards.floor_ratio"),
        (strategy("1.0.1", surprise=1), "surprise"),
        (strategy("1.0.1", law="guesswork"), "law"),
    ],
    ids=["torn", "deep", "oversized", "out of range", "unknown field", "unknown law"],
)
def test_a_bad_document_is_refused_whole_and_the_old_one_stays(body: bytes, path: str) -> None:
    registry = accept(Registry(), documents({"chat": strategy(law="equal")}))
    before = registry.active["chat"].hash

    registry = accept(registry, documents({"chat": body}))

    assert registry.active["chat"].hash == before
    assert path in problems(registry)


def test_a_good_document_after_a_bad_one_clears_the_refusal() -> None:
    registry = accept(Registry(), documents({"chat": b"nonsense"}))
    assert registry.active == {}
    registry = accept(registry, documents({"chat": strategy()}))
    assert registry.strategies.refused == {}
    assert "chat" in registry.active


def test_one_bad_document_does_not_block_another() -> None:
    registry = accept(Registry(), documents({"bad": b"nonsense", "good": strategy()}))
    assert list(registry.active) == ["good"]
    assert list(registry.strategies.refused) == ["bad"]


def test_the_same_version_with_other_content_is_refused() -> None:
    registry = accept(Registry(), documents({"chat": strategy("1.0.0", law="equal")}))
    registry = accept(registry, documents({"chat": strategy("1.0.0", law="capacity")}))
    assert registry.active["chat"].spec.law == "equal"
    assert "other content" in problems(registry)["version"]


def test_the_same_content_in_other_words_is_no_change() -> None:
    registry = accept(Registry(), documents({"chat": b'{"schema": 1, "version": "1.0.0"}'}))
    before = registry.active["chat"].hash
    registry = accept(registry, documents({"chat": b'{"version":"1.0.0","schema":1}'}))
    assert registry.active["chat"].hash == before
    assert registry.strategies.refused == {}


def test_a_deleted_document_stays_in_force_and_is_flagged() -> None:
    registry = accept(Registry(), documents({"chat": strategy()}))
    registry = accept(registry, documents({}))
    assert "chat" in registry.active
    assert registry.strategies.missing == {"chat"}

    registry = accept(registry, documents({"chat": strategy("1.1.0", law="equal")}))
    assert registry.strategies.missing == frozenset()
    assert registry.active["chat"].spec.version == "1.1.0"


def test_a_retired_service_leaves_and_frees_its_domains() -> None:
    first = documents({"old": strategy(routing={"domains": ["llm.example"]})})
    registry = accept(Registry(), first)
    second = documents(
        {
            "new": strategy(routing={"domains": ["llm.example"]}),
            "old": strategy("1.1.0", retired=True),
        },
    )
    registry = accept(accept(registry, second), second)
    assert list(registry.active) == ["new"]


@pytest.mark.parametrize("spelling", ["llm.example", "LLM.example"])
def test_a_domain_belongs_to_one_service_in_any_case(spelling: str) -> None:
    taken, same = strategy(routing={"domains": ["llm.example"]}), strategy(routing={"domains": [spelling]})
    registry = accept(Registry(), documents({"a": taken, "b": same}))
    assert list(registry.active) == ["a"]
    assert "`a` already has" in problems(registry, "b")["routing.domains"]


@pytest.mark.parametrize("name", ["", "a.b", "-a", "a/b", "ä", "x" * 129])
def test_a_key_that_names_no_service_is_refused(name: str) -> None:
    registry = accept(Registry(), documents({name: strategy()}))
    assert registry.active == {}
    assert name in registry.strategies.refused


@pytest.mark.fault("R40")
def test_the_kill_switch_of_a_service_goes_before_the_global_one() -> None:
    registry = accept(Registry(), documents({}, freezes={"*": "hold", "chat": "equal"}))
    assert registry.freeze("chat") == "equal"
    assert registry.freeze("other") == "hold"


def test_a_bad_canary_leaves_the_one_before_it() -> None:
    registry = accept(Registry(), documents({"chat": strategy()}, {"chat": canary()}))
    registry = accept(registry, documents({"chat": strategy()}, {"chat": canary(steps=[])}))
    assert registry.canaries.accepted["chat"].spec.canary == {"version": "v2"}
    assert "chat" in registry.canaries.refused


def test_a_forgotten_canary_is_gone() -> None:
    registry = accept(Registry(), documents({"chat": strategy()}, {"chat": canary()}))
    registry = accept(registry, documents({"chat": strategy()}))
    assert registry.canaries.missing == {"chat"}
    registry = without_canary(registry, "chat")
    assert registry.canaries.accepted == {}
    assert registry.canaries.missing == frozenset()
