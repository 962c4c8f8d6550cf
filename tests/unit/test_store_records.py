from __future__ import annotations

import json
import math
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model.decision import Decision, ServiceInputs, ServiceMemory
from controlplane.model.rollout import CanaryState, Phase, Verdict
from controlplane.model.signals import Drop, Provenance, SignalTable
from controlplane.model.strategy import Guards, Strategy
from controlplane.model.topology import Endpoint, Health, ServiceTopology, Topology
from controlplane.model.weights import WeightVector
from controlplane.store.framing import decode, encode
from controlplane.store.records import (
    canary_state_from_json,
    canary_state_to_json,
    decision_from_record,
    decision_record,
    inputs_from_json,
    inputs_to_json,
    memory_from_json,
    memory_to_json,
    strategy_from_json,
    strategy_to_json,
    table_from_json,
    table_to_json,
    topology_from_json,
    topology_to_json,
)

IDS = ("10.0.0.1:80", "10.0.0.2:80")
TOPOLOGY = ServiceTopology(
    "chat",
    (
        Endpoint(address="10.0.0.1", port=80, zone="a", health=Health.DRAINING, labels=(("pod", "p1"),)),
        Endpoint(address="10.0.0.2", port=80, version="v2", hash_key="stable"),
    ),
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
BY_ENDPOINT = st.dictionaries(st.sampled_from(IDS), FLOATS)
MEMORIES = st.builds(
    ServiceMemory,
    published=st.none() | st.just(WeightVector(IDS, (400_000, 600_000))),
    published_at=st.none() | FLOATS,
    smoothed=BY_ENDPOINT,
    first_seen=BY_ENDPOINT,
    decided_at=st.none() | FLOATS,
    fresh_at=st.none() | FLOATS,
    penalty_until=BY_ENDPOINT,
    sample_times=BY_ENDPOINT,
    fade_from=BY_ENDPOINT,
    strategy_hash=st.text(max_size=5),
)
CELLS = st.lists(st.floats(), min_size=6, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FLOATS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def table(values: list[float], ages: list[float]) -> SignalTable:
    return SignalTable(
        endpoints=IDS,
        signals=("running", "waiting", "custom"),
        values=np.array(values).reshape(2, 3),
        age_seconds=np.array(ages).reshape(2, 3),
        provenance=(Provenance("running", "prometheus", "sum by (instance) (x)"),),
        drops=(Drop(IDS[0], "waiting", "nan"),),
    )


def through_disk(content: dict[str, Any]) -> dict[str, Any]:
    found = decode(encode(content))
    assert found is not None
    return found


def inputs(found: SignalTable) -> ServiceInputs:
    return ServiceInputs(
        strategy=Strategy(schema=1, version="1.0.0", guards=Guards(tau_up_seconds=0.1)),
        strategy_hash="abc",
        topology=TOPOLOGY,
        table=found,
        freeze="hold",
    )


def decision(found: SignalTable, memory: ServiceMemory) -> Decision:
    vector = WeightVector(IDS, (1, 999_999))
    return Decision(
        service="chat",
        decided_at=12.25,
        inputs=inputs(found),
        weights=vector,
        proposed=vector,
        is_published=True,
        publish_reason="weights",
        stages=(),
        states=MappingProxyType(dict.fromkeys(IDS, "ok")),
        warnings=("flat signal",),
        memory=memory,
    )


@settings(max_examples=40, deadline=None)
@given(memory=MEMORIES)
def test_a_memory_keeps_every_bit(memory: ServiceMemory) -> None:
    assert memory_from_json(through_disk(memory_to_json(memory))) == memory


def test_a_read_only_mapping_is_written_like_any_other() -> None:
    memory = ServiceMemory(smoothed=MappingProxyType({"a": 0.1}))

    assert memory_to_json(memory)["smoothed"] == {"a": 0.1}


@settings(max_examples=40, deadline=None)
@given(values=CELLS, ages=CELLS)
def test_a_table_keeps_every_cell_and_nan_is_null(values: list[float], ages: list[float]) -> None:
    finite = [math.nan if math.isinf(value) else value for value in values]
    known_ages = [math.nan if math.isinf(age) else age for age in ages]
    before = table(finite, known_ages)

    after = table_from_json(through_disk(table_to_json(before)))

    np.testing.assert_array_equal(after.values, before.values)
    np.testing.assert_array_equal(after.age_seconds, before.age_seconds)
    assert (after.endpoints, after.signals) == (before.endpoints, before.signals)
    assert (after.provenance, after.drops) == (before.provenance, before.drops)


def test_an_empty_table_keeps_its_shape() -> None:
    empty = SignalTable(endpoints=(), signals=("a",), values=np.empty((0, 1)), age_seconds=np.empty((0, 1)))

    assert table_from_json(through_disk(table_to_json(empty))).values.shape == (0, 1)


def test_cells_of_another_shape_are_refused() -> None:
    content = table_to_json(table([0.0] * 6, [0.0] * 6))
    content["values"] = [[1.0, 2.0], [3.0, 4.0]]

    with pytest.raises(ValueError, match="shape"):
        table_from_json(content)


@settings(max_examples=40, deadline=None)
@given(parameters=st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_a_strategy_keeps_its_parameters(parameters: dict[str, Any]) -> None:
    strategy = Strategy(schema=1, version="1.0.0", parameters=parameters)

    after = strategy_from_json(through_disk(strategy_to_json(strategy)))

    assert after == strategy
    assert json.dumps(dict(after.parameters)) == json.dumps(parameters)


def test_a_topology_comes_back_equal() -> None:
    topology = Topology((TOPOLOGY, ServiceTopology("empty", ())), problems=("`x` has no port",))

    assert topology_from_json(through_disk(topology_to_json(topology))) == topology


def test_a_rollout_comes_back_equal() -> None:
    state = CanaryState(phase=Phase.ROLLED_BACK, no_data_since=1.5, last_verdict=Verdict.ERROR, reason="x")

    assert canary_state_from_json(through_disk(canary_state_to_json(state))) == state


@pytest.mark.parametrize(
    "reader", [memory_from_json, strategy_from_json, topology_from_json, canary_state_from_json]
)
def test_what_is_none_of_it_is_refused(reader: Any) -> None:
    with pytest.raises(ValueError, match="validation error"):
        reader({"schema": "x", "services": 5, "phase": 7, "smoothed": 3})


@settings(max_examples=20, deadline=None)
@given(values=CELLS, memory=MEMORIES)
def test_a_record_read_back_writes_the_same_bytes(values: list[float], memory: ServiceMemory) -> None:
    # given a decision
    finite = [math.nan if math.isinf(value) else value for value in values]
    made = decision(table(finite, [1.0] * 6), memory)
    before = replace(memory, strategy_hash="before")
    record = through_disk(decision_record(made, before) | {"unix_seconds": 1.5})

    # when it is read back, and made again from what was read
    recorded = decision_from_record(record)
    again = replace(made, inputs=recorded.inputs)

    # then nothing differs
    assert recorded.memory == before
    assert recorded.now == made.decided_at
    assert encode(decision_record(again, recorded.memory) | {"unix_seconds": 1.5}) == encode(record)
    assert recorded.is_repeated_by(again)
    assert not recorded.is_repeated_by(replace(again, is_published=False))


def test_inputs_read_back_write_the_same_bytes() -> None:
    content = inputs_to_json(inputs(table([0.1] * 6, [math.nan] * 6)))

    assert encode(inputs_to_json(inputs_from_json(through_disk(content)))) == encode(content)


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": "canary"},
        {"kind": "decision", "format": 99},
        {"kind": "decision", "format": 1},
        {"kind": "decision", "format": 1, "inputs": None},
        {"kind": "decision", "format": 1, "inputs": {"strategy": {}}},
    ],
)
def test_a_record_of_another_kind_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"decision record|validation error"):
        decision_from_record(broken)


@pytest.mark.fault("R34")
def test_passwords_in_urls_never_reach_the_disk() -> None:
    found = replace(
        table([0.0] * 6, [0.0] * 6),
        provenance=(
            Provenance("running", "http://reader:s3cret@prom:9090", "up{url='https://u:s3cret@x'}"),
        ),
    )

    written = encode(decision_record(decision(found, ServiceMemory()), ServiceMemory()))

    assert b"s3cret" not in written
    assert b"http://prom:9090" in written
