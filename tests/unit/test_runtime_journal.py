"""A checkpoint brings everything back: the same plans, so the same bytes (fault R1)."""

from __future__ import annotations

import json

import pytest

from controlplane.runtime.engine import EngineState
from controlplane.runtime.journal import checkpoint_of, restore
from tests.unit.test_runtime_engine import CANARY, documents, offer, tick, world


def reread(state: EngineState) -> EngineState:
    return restore(json.loads(json.dumps(checkpoint_of(state), allow_nan=False)))


@pytest.mark.fault("R1")
def test_a_restored_state_has_the_same_plans() -> None:
    known = world(documents("chat", "code", canary=CANARY), offer("chat", "code"), "chat", "code")
    before = tick(EngineState(), known).state
    after = reread(before)
    assert dict(after.plans) == dict(before.plans)
    assert dict(after.canaries) == dict(before.canaries)
    assert dict(after.memories) == dict(before.memories)


@pytest.mark.fault("R1")
def test_the_first_tick_after_a_restart_changes_nothing() -> None:
    known = world(documents("chat", canary=CANARY), offer("chat"), "chat")
    before = tick(EngineState(), known).state
    after = tick(reread(before), known, now=0.5)
    assert dict(after.state.plans) == dict(before.plans)
    assert not any(decision.is_published for decision in after.decisions)


def test_no_checkpoint_is_an_empty_state() -> None:
    assert restore(None).plans == {}
    assert restore({"format": 0}).plans == {}


def test_a_document_that_is_no_longer_understood_is_left_out_with_its_service() -> None:
    content = checkpoint_of(
        tick(EngineState(), world(documents("a", "b"), offer("a", "b"), "a", "b")).state
    )
    content["strategies"]["a"]["body"] = '{"schema": 99}'
    assert list(restore(content).plans) == ["b"]
