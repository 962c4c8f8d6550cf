"""Small worlds for the weight engine: endpoints, tables, strategies, and a loop that ticks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from controlplane.core.decide import decide
from controlplane.core.parse import document_hash, strategy_from_mapping
from controlplane.model.decision import Decision, ServiceInputs, ServiceMemory
from controlplane.model.signals import Floats, SignalTable
from controlplane.model.strategy import Strategy
from controlplane.model.topology import Endpoint, Health, ServiceTopology

HEALTHY_HOST: Mapping[str, float] = {
    "running": 40.0,
    "waiting": 1.0,
    "kv_usage_ratio": 0.4,
    "window_requests": 300.0,
    "good_requests_per_second": 5.0,
    "requests_per_second": 5.0,
    "errors_per_second": 0.0,
    "output_tokens_per_second": 500.0,
    "ttft_p90_seconds": 0.3,
    "latency_p99_seconds": 2.0,
}
"""A model server at half load."""


def topology(count: int, health: Mapping[int, Health] | None = None, start: int = 0) -> ServiceTopology:
    """Make `count` endpoints, in order of their numbers."""
    health = health or {}
    return ServiceTopology(
        "chat",
        tuple(
            Endpoint(
                address=f"10.0.{100 + row // 100}.{100 + row % 100}",
                port=8000,
                health=health.get(row, Health.HEALTHY),
            )
            for row in range(start, start + count)
        ),
    )


def table(
    endpoints: tuple[str, ...], columns: Mapping[str, Sequence[float] | Floats | float], age: float = 1.0
) -> SignalTable:
    """Make a table; a single number fills its column."""
    count = len(endpoints)
    arrays = [np.broadcast_to(np.asarray(column, dtype=np.float64), count) for column in columns.values()]
    values = np.array(arrays, dtype=np.float64).T.reshape(count, len(columns)).copy()
    return SignalTable(endpoints, tuple(columns), values, np.where(np.isnan(values), np.nan, age))


def hosts(endpoints: tuple[str, ...], **changes: Sequence[float] | Floats | float) -> SignalTable:
    """Make a table of healthy hosts, with some columns replaced."""
    return table(endpoints, {**HEALTHY_HOST, **changes})


def strategy(**fields: Any) -> Strategy:
    """Make a strategy from document fields."""
    made = strategy_from_mapping({"schema": 1, "version": "1.0.0", **fields})
    assert isinstance(made, Strategy), str(made)
    return made


FAST: Mapping[str, Any] = {
    "tau_down_seconds": 0,
    "tau_up_seconds": 0,
    "step_down_ratio": 1,
    "step_up_ratio": 100,
    "slow_start_seconds": 0,
    "hysteresis_ratio": 0,
    "dead_band_ratio": 0,
}
"""Guards out of the way: what the law wants arrives at once."""


def through_json(memory: ServiceMemory) -> ServiceMemory:
    """Send a memory through a checkpoint."""
    text = json.dumps(asdict(memory), allow_nan=False)
    return TypeAdapter(ServiceMemory).validate_json(text)


@dataclass
class Loop:
    """Tick one service, memory carried on."""

    strategy: Strategy
    topology: ServiceTopology
    now: float = 1000.0
    interval: float = 5.0
    freeze: str = ""
    memory: ServiceMemory = field(default_factory=ServiceMemory)
    decisions: list[Decision] = field(default_factory=list)

    def tick(self, signals: SignalTable | None = None, *, after: float | None = None) -> Decision:
        """Let time pass and decide; without `signals`, nothing is known."""
        if self.decisions:
            self.now += self.interval if after is None else after
        inputs = ServiceInputs(
            strategy=self.strategy,
            strategy_hash=document_hash(self.strategy),
            topology=self.topology,
            table=signals if signals is not None else table(self.topology.ids, {"running": np.nan}),
            freeze=self.freeze,
        )
        decision = decide(inputs, self.memory, self.now)
        self.memory = decision.memory
        self.decisions.append(decision)
        return decision

    def ticks(self, count: int, signals: SignalTable | None = None) -> Decision:
        """Tick with the same signals, each time newly sampled; give the last decision."""
        return [self.tick(signals) for _ in range(count)][-1]

    @property
    def published(self) -> list[Decision]:
        """Decisions that were published."""
        return [decision for decision in self.decisions if decision.is_published]


def shares(decision: Decision) -> Floats:
    """Proposed shares."""
    return np.array(decision.proposed.shares)


def stage(decision: Decision, name: str) -> Floats:
    """Values after one stage."""
    return next(each.values for each in decision.stages if each.name == name)


def spread(values: Iterable[float]) -> float:
    """Largest over smallest."""
    listed = list(values)
    return max(listed) / min(listed)
