"""One tick: from everything known to everything decided. No I/O; the loop around it does that.

`advance` is the place to see the order of things: documents, endpoints, weights, canaries, plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from controlplane.core.acceptance import Accepted, Registry, accept, without_canary
from controlplane.core.decide import decide
from controlplane.core.membership import Membership, admit
from controlplane.core.plan import ServicePlan
from controlplane.core.rollout import Event, hash_of, step
from controlplane.core.sanitize import tabulate
from controlplane.core.slo import observe, subsets
from controlplane.model.decision import Decision, ServiceInputs, ServiceMemory
from controlplane.model.documents import Documents, TopologyOffer
from controlplane.model.rollout import CanaryState, Observation, Phase, SubsetObservation
from controlplane.model.signals import Readings, SignalRequest
from controlplane.model.strategy import SignalsSpec, Strategy
from controlplane.model.topology import ServiceTopology
from controlplane.model.weights import WeightVector

Result = TypeVar("Result")
Guarded = Callable[[str, Callable[[], Result]], Result | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """The newest of everything that came in. `None`: not known yet."""

    documents: Documents | None = None
    offer: TopologyOffer | None = None
    readings: Mapping[str, Readings] = field(default_factory=lambda: MappingProxyType({}))
    acked_parts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Service → canary parts in the routes last published."""
    acked_ratio: float = 1.0
    """Share of connected nodes that acknowledged those routes."""
    attempted: frozenset[str] = frozenset()
    """Services whose signals were asked for at least once, with or without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineState:
    """What one tick leaves for the next."""

    registry: Registry = field(default_factory=Registry)
    membership: Membership = field(default_factory=Membership)
    memories: Mapping[str, ServiceMemory] = field(default_factory=lambda: MappingProxyType({}))
    decisions: Mapping[str, Decision] = field(default_factory=lambda: MappingProxyType({}))
    canaries: Mapping[str, CanaryState] = field(default_factory=lambda: MappingProxyType({}))
    observations: Mapping[str, tuple[SubsetObservation, SubsetObservation]] = field(
        default_factory=lambda: MappingProxyType({}),
    )
    """Service → what canary and baseline looked like in the last tick."""
    plans: Mapping[str, ServicePlan] = field(default_factory=lambda: MappingProxyType({}))
    """What Envoy should have of each service: the last plan that could be made."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What one tick decided."""

    state: EngineState
    decisions: tuple[Decision, ...]
    canary_events: tuple[tuple[str, Event], ...]


def settle(state: EngineState, world: World, *, now: float, hold_seconds: float) -> EngineState:
    """Take in documents and endpoints; decide nothing yet."""
    registry, membership = state.registry, state.membership
    if world.documents is not None:
        registry = accept(registry, world.documents)
    if world.offer is not None:
        membership = admit(membership, world.offer, now=now, hold_seconds=hold_seconds)
    return replace(state, registry=registry, membership=membership)


def advance(state: EngineState, world: World, *, now: float, guarded: Guarded[Decision]) -> Outcome:
    """Decide weights and canaries of every service that Envoy should have.

    `guarded` runs one service's computation and gives `None` if it raised: that service keeps its
    last plan and the others go on (fault R37).
    """
    decisions: dict[str, Decision] = {}
    canaries: dict[str, CanaryState] = {}
    observations: dict[str, tuple[SubsetObservation, SubsetObservation]] = {}
    events: list[tuple[str, Event]] = []
    for service, accepted in state.registry.active.items():
        if not _is_known(state, world, service):
            continue
        decision = guarded(service, _decision(state, world, service, accepted, now))
        if decision is None:
            continue
        decisions[service] = decision
        canary, observed, happened = _canary(state, world, decision, now)
        if canary is not None:
            canaries[service] = canary
        if observed is not None:
            observations[service] = observed
        events.extend((service, event) for event in happened)
    state = replace(
        state,
        memories=dict(state.memories) | {name: found.memory for name, found in decisions.items()},
        decisions=dict(state.decisions) | decisions,
        canaries=dict(state.canaries) | canaries,
        observations=observations,
    )
    state = _dissolve(state)
    state = replace(state, plans=_plans(state, decisions))
    return Outcome(state=state, decisions=tuple(decisions.values()), canary_events=tuple(events))


def restored_plans(state: EngineState) -> dict[str, ServicePlan]:
    """Plans straight from a checkpoint, without deciding anything."""
    plans = {}
    for service in state.registry.active:
        topology = topology_of(state.membership, service)
        published = state.memories.get(service, ServiceMemory()).published
        if published is not None and published.endpoints == topology.ids:
            plans[service] = _plan(state, service, topology, published)
    return plans


def _is_known(state: EngineState, world: World, service: str) -> bool:
    """Tell if enough is known to decide: discovery has answered, signals were asked for once."""
    is_asked = service in world.attempted or service in state.memories
    return is_asked and state.membership.topology.get(service) is not None


def _plans(state: EngineState, decisions: Mapping[str, Decision]) -> dict[str, ServicePlan]:
    plans = {}
    for service in state.registry.active:
        decision = decisions.get(service)
        if decision is not None:
            plans[service] = _plan(state, service, decision.inputs.topology, decision.weights)
        elif service in state.plans:
            plans[service] = state.plans[service]
    return plans


def _plan(
    state: EngineState,
    service: str,
    topology: ServiceTopology,
    weights: WeightVector,
) -> ServicePlan:
    canary = state.registry.canaries.accepted.get(service)
    return ServicePlan(
        strategy=state.registry.strategies.accepted[service].spec,
        topology=topology,
        weights=weights,
        canary_spec=canary.spec if canary else None,
        canary_state=state.canaries.get(service, CanaryState()) if canary else None,
    )


def topology_of(membership: Membership, service: str) -> ServiceTopology:
    """Endpoints of a service in force; none if discovery does not know it."""
    return membership.topology.get(service) or ServiceTopology(service, ())


def signal_request(topology: ServiceTopology, spec: SignalsSpec) -> SignalRequest:
    """Ask for the signals of a service's endpoints."""
    label = spec.join_endpoint_label
    return SignalRequest(
        service=topology.service,
        endpoints=topology.ids,
        metrics_urls=tuple(e.metrics_url or f"http://{e.id}/metrics" for e in topology.endpoints),
        spec=spec,
        join_values=tuple(e.attribute(label) for e in topology.endpoints) if spec.join == "label" else (),
    )


def _decision(
    state: EngineState,
    world: World,
    service: str,
    accepted: Accepted[Strategy],
    now: float,
) -> Callable[[], Decision]:
    def compute() -> Decision:
        topology = topology_of(state.membership, service)
        readings = world.readings.get(service) or Readings(service, now, ())
        table = tabulate(
            readings,
            topology.ids,
            stale_after_seconds=accepted.spec.signals.stale_after_seconds,
            now=now,
        )
        inputs = ServiceInputs(
            strategy=accepted.spec,
            strategy_hash=accepted.hash,
            topology=topology,
            table=table,
            freeze=state.registry.freeze(service),
        )
        return decide(inputs, state.memories.get(service, ServiceMemory()), now)

    return compute


def _canary(
    state: EngineState,
    world: World,
    decision: Decision,
    now: float,
) -> tuple[CanaryState | None, tuple[SubsetObservation, SubsetObservation] | None, tuple[Event, ...]]:
    service = decision.service
    accepted = state.registry.canaries.accepted.get(service)
    if accepted is None:
        return None, None, ()
    inputs = decision.inputs
    canary, baseline = (
        observe(inputs.table, inputs.topology, members)
        for members in subsets(inputs.topology, accepted.spec)
    )
    successor, events = step(
        state.canaries.get(service, CanaryState()),
        spec=accepted.spec,
        spec_hash=hash_of(accepted.spec),
        slo=inputs.strategy.slo,
        observation=Observation(
            canary=canary,
            baseline=baseline,
            acked_ratio=world.acked_ratio,
            acked_parts=world.acked_parts.get(service),
        ),
        now=now,
    )
    return successor, (canary, baseline), events


def _dissolve(state: EngineState) -> EngineState:
    """Forget canaries whose document is gone, once that cannot send anybody to a bad version.

    A rollout under way, or one that failed, keeps its split until its endpoints are gone: without
    the split they would get a full share of the service's traffic.
    """
    registry = state.registry
    if registry.is_reset:
        return state
    settled = {Phase.IDLE, Phase.PROMOTED, Phase.FAILED_CONFIG}
    for service in sorted(registry.canaries.missing):
        spec = registry.canaries.accepted[service].spec
        canary, _ = subsets(topology_of(state.membership, service), spec)
        if not canary or state.canaries.get(service, CanaryState()).phase in settled:
            registry = without_canary(registry, service)
    kept = {name: found for name, found in state.canaries.items() if name in registry.canaries.accepted}
    return replace(state, registry=registry, canaries=kept)
