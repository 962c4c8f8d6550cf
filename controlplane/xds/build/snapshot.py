"""The builder: a plan in, a snapshot out. Read this file first."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from controlplane.model.plan import ClusterPlan, FleetPlan, ListenerPlan
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, Resource, ResourceSet, Snapshot
from controlplane.xds.build.check import check_plan, check_size
from controlplane.xds.build.clusters import ClusterShape, cluster, shape_of
from controlplane.xds.build.encode import wrap
from controlplane.xds.build.endpoints import AssignmentEncoder
from controlplane.xds.build.listeners import listener
from controlplane.xds.build.routes import RouteEncoder
from controlplane.xds.build.versions import content_version, set_version, snapshot_version


class SnapshotBuilder:
    """Turns plans into snapshots, and remembers what it encoded for the last one.

    The result depends on the plan alone: a new builder, or one that failed in between, gives the
    same bytes. The memory only makes it cheap: a weight change costs one load assignment, an
    unchanged cluster or virtual host a comparison. One builder serves one group of Envoys; it is
    not for use by several threads at once.
    """

    def __init__(self, *, max_resource_bytes: int) -> None:
        self._max_resource_bytes = max_resource_bytes
        self._clusters: dict[str, tuple[ClusterShape, Resource]] = {}
        self._assignments: dict[str, tuple[ClusterPlan, Resource]] = {}
        self._encoders: dict[str, AssignmentEncoder] = {}
        self._listener: tuple[ListenerPlan, Resource] | None = None
        self._routes = RouteEncoder()
        self._route_table: Resource | None = None

    def build(self, plan: FleetPlan) -> Snapshot:
        """Encode everything one group of Envoys should have.

        Raises:
            InvalidPlan: if Envoy would refuse or misread the plan; names the service at fault.
            OversizedResource: if a resource is above the limit. What the caller serves already
                stays valid in either case.
        """
        check_plan(plan)
        clusters = sorted(plan.clusters, key=lambda each: each.name)
        self._forget_all_but({each.name for each in clusters})
        sets = (
            self._set(CLUSTER, [self._cluster(each) for each in clusters]),
            self._set(ENDPOINT, [self._assignment(each) for each in clusters]),
            self._set(LISTENER, [self._listener_of(plan.listener)]),
            self._set(ROUTE, [self._routes_of(plan)]),
        )
        by_type = MappingProxyType({each.type_url: each for each in sets})
        return Snapshot(version=snapshot_version(sets), sets=by_type)

    def _forget_all_but(self, names: set[str]) -> None:
        for memory in (self._clusters, self._assignments, self._encoders):
            for gone in memory.keys() - names:
                del memory[gone]

    def _cluster(self, plan: ClusterPlan) -> Resource:
        shape = shape_of(plan)
        known = self._clusters.get(plan.name)
        if known is None or known[0] != shape:
            # The load assignment has the cluster's own name.
            resource = _resource(CLUSTER, plan.name, bytes(cluster(shape)), references=(plan.name,))
            known = self._clusters[plan.name] = (shape, resource)
        return known[1]

    def _assignment(self, plan: ClusterPlan) -> Resource:
        known = self._assignments.get(plan.name)
        if known is not None and _has_same_assignment(known[0], plan):
            return known[1]
        encoder = self._encoders.setdefault(plan.name, AssignmentEncoder())
        resource = _resource(ENDPOINT, plan.name, encoder.encode(plan))
        if known is not None and known[1] == resource:
            resource = known[1]
        self._assignments[plan.name] = (plan, resource)
        return resource

    def _listener_of(self, plan: ListenerPlan) -> Resource:
        if self._listener is None or self._listener[0] != plan:
            body = bytes(listener(plan))
            self._listener = (plan, _resource(LISTENER, plan.name, body, references=(plan.route_config,)))
        return self._listener[1]

    def _routes_of(self, plan: FleetPlan) -> Resource:
        name = plan.listener.route_config
        resource = _resource(ROUTE, name, self._routes.encode(name, plan.routes))
        if self._route_table != resource:
            self._route_table = resource
        return self._route_table

    def _set(self, type_url: str, resources: Iterable[Resource]) -> ResourceSet:
        named = {resource.name: resource for resource in resources}
        for resource in named.values():
            check_size(resource, self._max_resource_bytes)
        return ResourceSet(
            type_url=type_url, version=set_version(named.values()), resources=MappingProxyType(named)
        )


def _has_same_assignment(left: ClusterPlan, right: ClusterPlan) -> bool:
    """Compare everything a load assignment is made of and checked by; names are equal already."""
    return left is right or (
        left.endpoints == right.endpoints
        and left.strategy.locality == right.strategy.locality
        and left.strategy.maglev == right.strategy.maglev
    )


def _resource(type_url: str, name: str, message: bytes, references: tuple[str, ...] = ()) -> Resource:
    body = wrap(type_url, message)
    return Resource(name=name, version=content_version(body), body=body, references=references)
