"""From plans to a published snapshot, without letting one service's trouble stop the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter

from controlplane.core.plan import ServicePlan, plan_fleet
from controlplane.errors import BuildError
from controlplane.model.fleet import FleetStatus
from controlplane.model.plan import FleetPlan, ListenerPlan
from controlplane.model.resources import ROUTE, Snapshot


class Builder(Protocol):
    """Turns a plan into resources."""

    def build(self, plan: FleetPlan) -> Snapshot:
        """Encode a plan.

        Raises:
            BuildError: if it cannot become resources that Envoy takes.
        """
        ...


class Server(Protocol):
    """Serves snapshots to Envoy."""

    def publish(self, snapshot: Snapshot) -> None:
        """Serve this from now on. Never blocks on a client."""
        ...

    def fleet(self) -> FleetStatus:
        """Tell what the connected nodes have."""
        ...


class Publisher:
    """Holds what is being served, and changes it only for something that builds."""

    def __init__(
        self,
        *,
        builder: Builder,
        server: Server,
        listener: ListenerPlan,
        registry: CollectorRegistry,
    ) -> None:
        self._builder = builder
        self._server = server
        self._listener = listener
        self._log = structlog.get_logger("trimtab.publish")
        self._failures = Counter(
            "trimtab_build_failures_total",
            "Plans that could not become resources; the last good plan stayed.",
            ["service"],
            registry=registry,
        )
        self._served: Mapping[str, ServicePlan] = {}
        self._snapshot: Snapshot | None = None
        self.failed: Mapping[str, str] = {}
        """Services whose newest plan does not build, with why."""

    @property
    def snapshot(self) -> Snapshot | None:
        """What is being served; `None` before the first publication."""
        return self._snapshot

    @property
    def acked_parts(self) -> dict[str, int]:
        """Canary parts in the routes being served, by service."""
        return {
            service: plan.canary_state.canary_parts
            for service, plan in self._served.items()
            if plan.canary_state is not None
        }

    def acked_ratio(self) -> float:
        """Share of connected nodes that acknowledged the routes being served."""
        routes = self._snapshot.get(ROUTE) if self._snapshot else None
        return self._server.fleet().acked_ratio(ROUTE, routes.version) if routes else 1.0

    def publish(self, plans: Mapping[str, ServicePlan]) -> bool:
        """Serve these plans if they differ from what is served; tell if they did.

        A service whose new plan does not build keeps the one being served.
        """
        snapshot, served = self._build(plans)
        if snapshot is None:
            return False
        self._served = served
        if self._snapshot is not None and snapshot.version == self._snapshot.version:
            return False
        self._snapshot = snapshot
        self._server.publish(snapshot)
        return True

    def _build(self, plans: Mapping[str, ServicePlan]) -> tuple[Snapshot | None, Mapping[str, ServicePlan]]:
        try:
            snapshot = self._encode(plans)
        except BuildError as error:
            self._log.warning("build_failed", error=str(error))
            return self._build_what_builds(plans)
        self.failed = {}
        return snapshot, plans

    def _build_what_builds(
        self,
        plans: Mapping[str, ServicePlan],
    ) -> tuple[Snapshot | None, Mapping[str, ServicePlan]]:
        """Find the services at fault by adding changes one at a time to what is served."""
        kept = {name: plan for name, plan in self._served.items() if name in plans}
        failed: dict[str, str] = {}
        snapshot = None
        for service, plan in sorted(plans.items()):
            candidate = kept | {service: plan}
            try:
                snapshot = self._encode(candidate)
            except BuildError as error:
                failed[service] = str(error)
                self._failures.labels(service).inc()
                self._log.warning("plan_refused", service=service, error=str(error))
            else:
                kept = candidate
        self.failed = failed
        return snapshot, kept

    def _encode(self, plans: Mapping[str, ServicePlan]) -> Snapshot:
        return self._builder.build(plan_fleet(plans.values(), self._listener))
