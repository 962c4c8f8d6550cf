"""State views built by hand: two services, a canary, three nodes, and everything that can be odd."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from controlplane.model.decision import Decision, ServiceInputs, ServiceMemory, Stage
from controlplane.model.documents import AcceptedDocument
from controlplane.model.fleet import FleetStatus, NodeStatus, SyncState, TypeStatus
from controlplane.model.health import FuseState, SourceHealth
from controlplane.model.problems import Problem, Rejected
from controlplane.model.resources import CLUSTER, ENDPOINT
from controlplane.model.rollout import (
    CanarySpec,
    CanaryState,
    CanaryStep,
    Phase,
    SubsetObservation,
    Verdict,
)
from controlplane.model.signals import Drop, Provenance, Readings, SignalTable
from controlplane.model.strategy import Strategy
from controlplane.model.topology import Endpoint, ServiceTopology
from controlplane.model.weights import WeightVector
from controlplane.runtime.state import (
    CanaryView,
    RejectedDocument,
    ServiceView,
    StateView,
)

NOW = 1000.0
FAST, SLOW = "10.0.0.1:8000", "10.0.0.2:8000"
IDS = (FAST, SLOW)


@dataclass(slots=True)
class FixedState:
    """A `StateReader` that gives what it was given."""

    current: StateView
    past: tuple[AcceptedDocument, ...] = ()
    reads: int = 0
    failure: Exception | None = None
    histories: dict[str, tuple[AcceptedDocument, ...]] = field(default_factory=dict)

    def view(self) -> StateView:
        """Give the view, or raise the scripted failure."""
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return self.current

    def history(self, service: str) -> tuple[AcceptedDocument, ...]:
        """Give the history of `service`."""
        return self.histories.get(service, self.past)


def topology(service: str = "chat") -> ServiceTopology:
    """Two endpoints in two zones."""
    return ServiceTopology(
        service,
        (
            Endpoint(address="10.0.0.1", port=8000, zone="a", version="v1", gpu="H100"),
            Endpoint(address="10.0.0.2", port=8000, zone="b", version="v2", gpu="A10"),
        ),
    )


def decision(
    *,
    service: str = "chat",
    values: tuple[float, float] = (0.8, 0.2),
    term: float = 2.0,
    sample: float = 0.5,
    decided_at: float = NOW - 3.0,
) -> Decision:
    """A decision that gave the fast endpoint three quarters; floats may be anything."""
    weights = WeightVector(IDS, (750_000, 250_000))
    table = SignalTable(
        endpoints=IDS,
        signals=("kv_usage_ratio", "running"),
        values=np.array([[sample, 3.0], [0.9, np.nan]]),
        age_seconds=np.array([[1.0, 1.5], [2.0, np.nan]]),
        provenance=(Provenance("running", "scrape", "vllm:num_requests_running"),),
        drops=(Drop(SLOW, "running", "nan"),),
    )
    stages = (
        Stage("capacity", np.array(values), terms={"u": np.array([term, 1.0])}),
        Stage("step limit", np.array([0.75, 0.25]), reasons={FAST: "limited to +10 %"}, notes=("ok",)),
    )
    return Decision(
        service=service,
        decided_at=decided_at,
        inputs=ServiceInputs(
            strategy=strategy(), strategy_hash="abc123", topology=topology(service), table=table
        ),
        weights=weights,
        proposed=WeightVector(IDS, (800_000, 200_000)),
        is_published=True,
        publish_reason="weights",
        stages=stages,
        states={FAST: "ok", SLOW: "no data"},
        warnings=("flat signal",),
        memory=ServiceMemory(published=weights, published_at=NOW - 4.0),
        previous=WeightVector(IDS, (700_000, 300_000)),
    )


def strategy(version: str = "1.2.0") -> Strategy:
    """The smallest strategy."""
    return Strategy(schema=1, version=version)


def canary(*, figure: float = 0.4, requests: float = 30.0) -> CanaryView:
    """A canary at 10 %, on its second verdict."""
    return CanaryView(
        spec=CanarySpec(
            schema=1,
            canary={"version": "v2"},
            baseline={"version": "v1"},
            steps=(
                CanaryStep(weight_percent=10, hold_seconds=60),
                CanaryStep(weight_percent=50, hold_seconds=60, gate=True),
            ),
        ),
        spec_hash="def456",
        state=CanaryState(
            phase=Phase.PROGRESSING,
            canary_parts=10_000,
            entered_at=NOW - 30.0,
            judged_at=NOW - 5.0,
            last_verdict=Verdict.PASS,
            reason="step 1 of 2",
        ),
        canary=SubsetObservation(
            endpoints=1, healthy=1, window_requests=requests, figures={"ttft_p90_seconds": figure}
        ),
        baseline=SubsetObservation(
            endpoints=1, healthy=1, window_requests=270.0, figures={"ttft_p90_seconds": 0.3}
        ),
    )


def rejected(key: str = "strategies/chat", revision: int = 9) -> RejectedDocument:
    """A refused document with two problems."""
    return RejectedDocument(
        key=key,
        revision=revision,
        rejected=Rejected(
            (Problem("guards.floor_ratio", "too large", "3"), Problem("law", "unknown", "'best'"))
        ),
        at_seconds=NOW - 10.0,
    )


def service(name: str = "chat", **changes: Any) -> ServiceView:
    """A service with a decision, a canary and a refused document."""
    fields: dict[str, Any] = {
        "service": name,
        "strategy": strategy(),
        "strategy_hash": "abc123",
        "strategy_revision": 7,
        "topology": topology(name),
        "decision": decision(service=name),
        "readings": Readings(
            service=name,
            read_at_seconds=NOW - 2.0,
            samples=(),
            unresolved=("ttft_p90_seconds",),
            unmatched_series=1,
            failures=("10.0.0.2:8000: timed out",),
        ),
        "rejected": rejected(),
        "canary": canary(),
        "flags": ("topology_held",),
    }
    return ServiceView(**(fields | changes))


def large_service(count: int) -> ServiceView:
    """A service with many endpoints, and a decision with a dozen stages."""
    endpoints = sorted(
        (Endpoint(address=f"10.{i // 65536}.{i // 256 % 256}.{i % 256}", port=80) for i in range(count)),
        key=lambda endpoint: endpoint.id,
    )
    found = ServiceTopology("chat", tuple(endpoints))
    vector = WeightVector(found.ids, (200,) * count)
    column = np.full(count, 1.0 / count)
    small = decision()
    table = SignalTable(
        endpoints=found.ids,
        signals=("running",),
        values=column.reshape(-1, 1).copy(),
        age_seconds=column.reshape(-1, 1).copy(),
    )
    big = dataclasses.replace(
        small,
        inputs=dataclasses.replace(small.inputs, topology=found, table=table),
        weights=vector,
        proposed=vector,
        previous=vector,
        stages=tuple(Stage(f"stage {i}", column, dict.fromkeys(found.ids, "why")) for i in range(12)),
        states=dict.fromkeys(found.ids, "ok"),
    )
    return service(topology=found, decision=big)


def node(node_id: str, *states: SyncState, message: str = "") -> NodeStatus:
    """A node with clusters and endpoints in the given states."""
    return NodeStatus(
        node_id=node_id,
        cluster="gateways",
        group="default",
        peer="127.0.0.1:50000",
        user_agent="envoy 1.40.0",
        variant="delta",
        connected_at_seconds=400.0,
        last_contact_seconds=499.0,
        types=tuple(
            TypeStatus(
                type_url=url,
                state=state,
                intended_version="b2",
                sent_version="b2",
                acked_version="b2" if state is SyncState.SYNCED else "b1",
                nacked_version="b2" if state is SyncState.NACKED else "",
                nack_message=message if state is SyncState.NACKED else "",
                changed_at_seconds=490.0,
            )
            for url, state in zip((CLUSTER, ENDPOINT), states, strict=False)
        ),
    )


def fleet() -> FleetStatus:
    """One node in step, one that refused, one just connected. Its clock is another than the view's."""
    return FleetStatus(
        500.0,
        (
            node("edge/1", SyncState.SYNCED, SyncState.SYNCED),
            node("edge/2", SyncState.SYNCED, SyncState.NACKED, message="bad \x1b[31mweight"),
            node("edge/3"),
        ),
    )


def view(**changes: Any) -> StateView:
    """Everything at `NOW`."""
    fields: dict[str, Any] = {
        "at_seconds": NOW,
        "is_ready": True,
        "not_ready_reason": "",
        "started_from_checkpoint": False,
        "services": (service("chat"), service("embed", decision=None, canary=None, rejected=None)),
        "orphans": {"broken": rejected("strategies/broken", 3)},
        "sources": (
            SourceHealth(
                name="consul",
                state=FuseState.DEGRADED,
                since_seconds=NOW - 50.0,
                last_success_seconds=NOW - 60.0,
                consecutive_failures=6,
                last_error="refused",
            ),
            SourceHealth(
                name="scrape",
                state=FuseState.NORMAL,
                since_seconds=0.0,
                last_success_seconds=None,
                consecutive_failures=0,
                last_error="",
            ),
        ),
        "fleet": fleet(),
        "versions": {CLUSTER: "b2", ENDPOINT: "b2"},
        "last_tick_seconds": NOW - 1.0,
    }
    return StateView(**(fields | changes))


def history() -> tuple[AcceptedDocument, ...]:
    """Two documents, oldest first."""
    return (
        AcceptedDocument(
            service="chat", version="1.1.0", hash="aaa", accepted_at_unix_seconds=1e9, body='{"a": 1}'
        ),
        AcceptedDocument(
            service="chat", version="1.2.0", hash="abc123", accepted_at_unix_seconds=1.1e9, body="{}"
        ),
    )
