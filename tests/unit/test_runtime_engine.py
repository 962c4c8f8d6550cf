"""One tick: documents and endpoints in, plans out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controlplane.model.decision import Decision
from controlplane.model.documents import Documents, RawDocument, TopologyOffer
from controlplane.model.rollout import Phase
from controlplane.model.signals import Readings, Sample
from controlplane.model.topology import Endpoint, ServiceTopology, Topology
from controlplane.runtime.engine import EngineState, Outcome, World, advance, settle

PORTS = (11, 12, 13, 14)


def raw(service: str, document: dict[str, Any]) -> RawDocument:
    return RawDocument(f"strategies/{service}", json.dumps({"schema": 1, **document}).encode(), 1)


def documents(*services: str, canary: dict[str, Any] | None = None, **fields: Any) -> Documents:
    document = {"version": "1.0.0", **fields}
    return Documents(
        {service: raw(service, document) for service in services},
        {services[0]: raw(services[0], canary)} if canary else {},
    )


def offer(*services: str, ports: tuple[int, ...] = PORTS) -> TopologyOffer:
    endpoints = tuple(
        Endpoint(address="10.0.0.1", port=port, version="v2" if port == ports[-1] else "v1")
        for port in ports
    )
    return TopologyOffer(Topology(tuple(ServiceTopology(service, endpoints) for service in services)))


def world(documents: Documents, offer: TopologyOffer, *asked: str) -> World:
    return World(documents=documents, offer=offer, attempted=frozenset(asked))


def compute(_part: str, run: Callable[[], Decision]) -> Decision | None:
    return run()


def tick(state: EngineState, found: World, now: float = 0.0) -> Outcome:
    return advance(settle(state, found, now=now, hold_seconds=30.0), found, now=now, guarded=compute)


def test_a_service_is_planned_once_everything_about_it_is_known() -> None:
    asked = world(documents("chat"), offer("chat"), "chat")
    outcome = tick(EngineState(), asked)
    plan = outcome.state.plans["chat"]
    assert plan.weights.weights == (250_000,) * 4
    assert plan.canary_spec is None


@pytest.mark.fault("R2")
@pytest.mark.parametrize(
    "unknown",
    [
        world(documents("chat"), offer("chat")),
        world(documents("chat"), offer("other"), "chat"),
    ],
    ids=["signals never asked for", "discovery has not answered"],
)
def test_a_service_is_not_planned_before(unknown: World) -> None:
    assert tick(EngineState(), unknown).state.plans == {}


@pytest.mark.fault("R37")
def test_a_service_that_raises_keeps_its_plan_and_the_others_go_on() -> None:
    both = world(documents("a", "b"), offer("a", "b"), "a", "b")
    state = tick(EngineState(), both).state
    grown = world(documents("a", "b"), offer("a", "b", ports=(11, 12, 13, 14, 15)), "a", "b")

    def broken(part: str, run: Callable[[], Decision]) -> Decision | None:
        return None if part == "a" else run()

    settled = settle(state, grown, now=1.0, hold_seconds=30.0)
    outcome = advance(settled, grown, now=1.0, guarded=broken)

    assert len(outcome.state.plans["a"].topology.endpoints) == 4
    assert len(outcome.state.plans["b"].topology.endpoints) == 5


def test_a_retired_service_leaves_the_plan() -> None:
    state = tick(EngineState(), world(documents("chat"), offer("chat"), "chat")).state
    retired = documents("chat", retired=True, version="1.1.0")
    assert tick(state, world(retired, offer("chat"), "chat"), now=1.0).state.plans == {}


def test_signals_reach_the_weights() -> None:
    samples = tuple(
        Sample(f"10.0.0.1:{port}", signal, value, 0.5)
        for port, speed in zip(PORTS, (1, 1, 2, 4), strict=True)
        for signal, value in {
            "running": 4.0,
            "kv_usage_ratio": 0.4,
            "output_tokens_per_second": 100.0 * speed,
            "window_requests": 100.0,
        }.items()
    )
    found = world(documents("chat", signals={"engine": "vllm"}), offer("chat"), "chat")
    found = replace(found, readings={"chat": Readings("chat", 0.0, samples)})
    decision = tick(EngineState(), found).decisions[0]
    law = decision.stages[0].values
    assert law[3] == pytest.approx(2 * law[2]) == pytest.approx(4 * law[0])


CANARY = {
    "canary": {"version": "v2"},
    "steps": [{"weight_percent": 10}],
    "analysis": {"metrics": [{"signal": "ttft_p90_seconds", "max_value": 1.0}]},
}


def test_a_canary_starts_in_the_same_tick_and_takes_its_endpoints_out_of_the_stable_cluster() -> None:
    outcome = tick(EngineState(), world(documents("chat", canary=CANARY), offer("chat"), "chat"))
    state = outcome.state.canaries["chat"]
    assert state.phase is Phase.STARTING
    assert state.canary_parts == 10_000
    assert outcome.state.plans["chat"].canary_state == state


def test_deleting_the_document_of_a_running_canary_keeps_its_split() -> None:
    running = tick(EngineState(), world(documents("chat", canary=CANARY), offer("chat"), "chat")).state
    kept = tick(running, world(documents("chat"), offer("chat"), "chat"), now=1.0).state
    assert kept.plans["chat"].canary_state is not None
    assert kept.registry.canaries.missing == {"chat"}


def test_deleting_it_once_its_endpoints_are_gone_ends_it() -> None:
    running = tick(EngineState(), world(documents("chat", canary=CANARY), offer("chat"), "chat")).state
    endpoints = tuple(Endpoint(address="10.0.0.1", port=port, version="v1") for port in PORTS[:3])
    without_v2 = TopologyOffer(Topology((ServiceTopology("chat", endpoints),)))
    ended = tick(running, world(documents("chat"), without_v2, "chat"), now=1.0).state
    assert ended.plans["chat"].canary_spec is None
    assert ended.canaries == {}


@pytest.mark.fault("R40")
def test_a_frozen_service_is_held_whatever_its_signals_say() -> None:
    state = tick(EngineState(), world(documents("chat"), offer("chat"), "chat")).state
    frozen = replace(documents("chat", law="static", version="2.0.0"), freezes={"*": "hold"})
    frozen = replace(
        frozen,
        strategies={
            "chat": raw(
                "chat",
                {
                    "version": "2.0.0",
                    "law": "static",
                    "parameters": {"weights": {"10.0.0.1:11": 9, "10.0.0.1:12": 1}},
                },
            ),
        },
    )
    held = tick(state, world(frozen, offer("chat"), "chat"), now=60.0).state
    assert held.plans["chat"].weights == state.plans["chat"].weights
