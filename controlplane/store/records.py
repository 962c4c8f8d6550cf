"""Between the model and strict JSON: everything needed to decide again, and to get the same bytes.

NaN (unknown) becomes ``null``; floats keep every bit, since JSON's decimal form of a Python float
reads back as the same float. What ``…_to_json`` writes, ``…_from_json`` reads back as an equal value.
Stages are not written: they follow from what is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter

from controlplane.model.decision import Decision, ServiceInputs, ServiceMemory
from controlplane.model.rollout import CanaryState
from controlplane.model.signals import Drop, Floats, Provenance, SignalTable
from controlplane.model.strategy import Strategy
from controlplane.model.topology import ServiceTopology, Topology
from controlplane.store.framing import encode

Model = TypeVar("Model")

RECORD_FORMAT = 1
"""Raised when an older reader would misread a record."""

_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
"""``user:password@`` in a URL (RFC 3986, section 3.2.1)."""

_STRATEGY = TypeAdapter(Strategy)
_SERVICE_TOPOLOGY = TypeAdapter(ServiceTopology)
_TOPOLOGY = TypeAdapter(Topology)
_MEMORY = TypeAdapter(ServiceMemory)
_CANARY_STATE = TypeAdapter(CanaryState)
_PROVENANCE = TypeAdapter(tuple[Provenance, ...])
_DROPS = TypeAdapter(tuple[Drop, ...])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedDecision:
    """The arguments of `core.decide.decide`, as a record has them, and the record."""

    inputs: ServiceInputs
    memory: ServiceMemory
    """Before the decision."""
    now: float
    record: Mapping[str, Any]

    def is_repeated_by(self, decision: Decision) -> bool:
        """Tell if a decision made again gives this record, byte for byte."""
        again = decision_record(decision, self.memory)
        return encode(again) == encode({key: self.record.get(key) for key in again})


def decision_record(decision: Decision, before: ServiceMemory) -> dict[str, Any]:
    """Write one decision, made with the memory `before`: arguments and result.

    The caller may add keys of its own, such as the wall clock's time.
    """
    return {
        "kind": "decision",
        "format": RECORD_FORMAT,
        "service": decision.service,
        "now": decision.decided_at,
        "inputs": inputs_to_json(decision.inputs),
        "memory_before": memory_to_json(before),
        "memory": memory_to_json(decision.memory),
        "weights": decision.weights.as_mapping(),
        "proposed": decision.proposed.as_mapping(),
        "is_published": decision.is_published,
        "publish_reason": decision.publish_reason,
        "states": dict(decision.states),
        "warnings": list(decision.warnings),
    }


def decision_from_record(record: Mapping[str, Any]) -> RecordedDecision:
    """Read back what a decision was made from.

    Raises:
        ValueError: if it is not a decision record of this format.
    """
    if record.get("kind") != "decision" or record.get("format") != RECORD_FORMAT:
        raise ValueError(f"not a decision record of format {RECORD_FORMAT}")
    try:
        return RecordedDecision(
            inputs=inputs_from_json(record["inputs"]),
            memory=memory_from_json(record["memory_before"]),
            now=float(record["now"]),
            record=record,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the decision record lacks or garbles a field: {error}") from error


def inputs_to_json(inputs: ServiceInputs) -> dict[str, Any]:
    """Write a decision's inputs."""
    return {
        "strategy": strategy_to_json(inputs.strategy),
        "strategy_hash": inputs.strategy_hash,
        "topology": _to_json(_SERVICE_TOPOLOGY, inputs.topology),
        "table": table_to_json(inputs.table),
        "freeze": inputs.freeze,
    }


def inputs_from_json(content: Mapping[str, Any]) -> ServiceInputs:
    """Read what `inputs_to_json` wrote.

    Raises:
        ValueError: if a value is not of its type.
        KeyError: if one is missing.
    """
    return ServiceInputs(
        strategy=strategy_from_json(content["strategy"]),
        strategy_hash=str(content["strategy_hash"]),
        topology=_SERVICE_TOPOLOGY.validate_python(content["topology"]),
        table=table_from_json(content["table"]),
        freeze=str(content["freeze"]),
    )


def table_to_json(table: SignalTable) -> dict[str, Any]:
    """Write a signal table: rows of cells, unknown ones null. Passwords in URLs are left out."""
    return {
        "endpoints": list(table.endpoints),
        "signals": list(table.signals),
        "values": _cells_to_json(table.values),
        "age_seconds": _cells_to_json(table.age_seconds),
        "provenance": [asdict(_without_credentials(found)) for found in table.provenance],
        "drops": [asdict(found) for found in table.drops],
    }


def table_from_json(content: Mapping[str, Any]) -> SignalTable:
    """Read what `table_to_json` wrote.

    Raises:
        ValueError: if a value is not of its type, or the shape is wrong.
        KeyError: if one is missing.
    """
    endpoints, signals = tuple(content["endpoints"]), tuple(content["signals"])
    shape = (len(endpoints), len(signals))
    return SignalTable(
        endpoints=endpoints,
        signals=signals,
        values=_cells_from_json(content["values"], shape),
        age_seconds=_cells_from_json(content["age_seconds"], shape),
        provenance=_PROVENANCE.validate_python(content["provenance"]),
        drops=_DROPS.validate_python(content["drops"]),
    )


def strategy_to_json(strategy: Strategy) -> dict[str, Any]:
    """Write a strategy with every field, defaults included: a later default must not change a replay."""
    return _to_json(_STRATEGY, strategy)


def strategy_from_json(content: Mapping[str, Any]) -> Strategy:
    """Read what `strategy_to_json` wrote.

    Raises:
        ValueError: if it is not a strategy.
    """
    return _STRATEGY.validate_python(content)


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """Write all endpoints of all services."""
    return _to_json(_TOPOLOGY, topology)


def topology_from_json(content: Mapping[str, Any]) -> Topology:
    """Read what `topology_to_json` wrote.

    Raises:
        ValueError: if it is not a topology.
    """
    return _TOPOLOGY.validate_python(content)


def memory_to_json(memory: ServiceMemory) -> dict[str, Any]:
    """Write what a decision leaves for the next."""
    return _to_json(_MEMORY, memory)


def memory_from_json(content: Mapping[str, Any]) -> ServiceMemory:
    """Read what `memory_to_json` wrote.

    Raises:
        ValueError: if it is not a memory.
    """
    return _MEMORY.validate_python(content)


def canary_state_to_json(state: CanaryState) -> dict[str, Any]:
    """Write a rollout's memory."""
    return _to_json(_CANARY_STATE, state)


def canary_state_from_json(content: Mapping[str, Any]) -> CanaryState:
    """Read what `canary_state_to_json` wrote.

    Raises:
        ValueError: if it is not a rollout's memory.
    """
    return _CANARY_STATE.validate_python(content)


def _to_json(adapter: TypeAdapter[Model], value: Model) -> dict[str, Any]:
    found: dict[str, Any] = adapter.dump_python(value, mode="json", fallback=_plain, warnings="none")
    return found


def _plain(value: object) -> Any:  # noqa: ANN401 - any JSON
    """Give pydantic a plain mapping for those it does not know, such as a read-only one.

    It would warn about each; that the rest is what it should be, types and framing see to.
    """
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _without_credentials(found: Provenance) -> Provenance:
    return replace(
        found,
        source=_CREDENTIALS.sub("", found.source),
        query=_CREDENTIALS.sub("", found.query),
    )


def _cells_to_json(cells: Floats) -> list[list[float | None]]:
    return [[None if math.isnan(cell) else cell for cell in row] for row in cells.tolist()]


def _cells_from_json(rows: list[list[float | None]], shape: tuple[int, int]) -> Floats:
    if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
        raise ValueError(f"the cells do not have shape {shape}")
    flat = [math.nan if cell is None else cell for row in rows for cell in row]
    return np.array(flat, dtype=np.float64).reshape(shape)
