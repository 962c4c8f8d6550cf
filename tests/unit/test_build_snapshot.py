"""Snapshots: what changes a version, what is refused, and what routes and clusters say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

import pytest
from betterproto2 import Message
from envoy_data_plane.envoy.config.cluster.v3 import Cluster
from envoy_data_plane.envoy.config.listener.v3 import Listener
from envoy_data_plane.envoy.config.route.v3 import Route, RouteAction, RouteConfiguration
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.maglev.v3 import Maglev
from envoy_data_plane.google.protobuf import Any
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model.plan import ClusterShare, FleetPlan, RoutePlan
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, TYPE_ORDER, Snapshot
from controlplane.model.rollout import TOTAL_PARTS
from controlplane.model.strategy import HashPolicy, HealthCheck, Locality, Retry, Routing, Strategy
from controlplane.model.topology import Health
from controlplane.xds.build import SnapshotBuilder
from controlplane.xds.build.routes import virtual_host
from tests.support.build_plans import (
    LISTENER as LISTENER_PLAN,
)
from tests.support.build_plans import (
    STRATEGY,
    canary_route,
    cluster_plan,
    endpoint,
    fleet_plan,
    weighted,
)

LIMIT = 1 << 20
MEMBERS = [endpoint(index, zone="ab"[index % 2]) for index in range(4)]


def build(plan: FleetPlan) -> Snapshot:
    return SnapshotBuilder(max_resource_bytes=LIMIT).build(plan)


def unpack(snapshot: Snapshot, type_url: str, name: str) -> Message:
    found = snapshot.sets[type_url].resources[name]
    message = Any.parse(found.body).unpack()
    assert message is not None
    return message


def routes_of(plan: FleetPlan) -> RouteConfiguration:
    message = unpack(build(plan), ROUTE, plan.listener.route_config)
    assert isinstance(message, RouteConfiguration)
    return message


def action_of(route: Route) -> RouteAction:
    assert route.route is not None
    return route.route


def changed_types(before: Snapshot, after: Snapshot) -> set[str]:
    return {
        url for url in TYPE_ORDER if before.get(url) and before.sets[url].version != after.sets[url].version
    }


def plain() -> FleetPlan:
    return fleet_plan(cluster_plan("llama", weighted(MEMBERS)), cluster_plan("qwen", weighted(MEMBERS)))


def test_sets_are_complete_in_order_and_closed() -> None:
    snapshot = build(plain())
    assert list(snapshot.sets) == [CLUSTER, ENDPOINT, LISTENER, ROUTE]
    for name, resource in snapshot.sets[CLUSTER].resources.items():
        assert resource.references == (name,)
        assert name in snapshot.sets[ENDPOINT].resources
    (listener,) = snapshot.sets[LISTENER].resources.values()
    assert listener.references == tuple(snapshot.sets[ROUTE].resources) == ("trimtab",)


@settings(max_examples=25, deadline=None)
@given(clusters=st.permutations(["a", "b", "c", "d"]), routes=st.permutations(["a", "b", "c", "d"]))
def test_equal_plans_in_any_order_give_equal_snapshots(clusters: list[str], routes: list[str]) -> None:
    def plan(cluster_names: list[str], route_names: list[str]) -> FleetPlan:
        by_name = {name: cluster_plan(name, weighted(MEMBERS)) for name in cluster_names}
        table = tuple(
            RoutePlan(name, STRATEGY, (f"{name}.x", f"{name}.y"), (ClusterShare(name, 1),))
            for name in route_names
        )
        return fleet_plan(*by_name.values(), routes=table)

    assert build(plan(clusters, routes)) == build(plan(sorted(clusters), sorted(routes)))


def test_a_map_in_another_order_is_the_same_content() -> None:
    def plan(zones: dict[str, int]) -> FleetPlan:
        strategy = replace(STRATEGY, locality=Locality(weights=MappingProxyType(zones)))
        return fleet_plan(cluster_plan("llama", weighted(MEMBERS), strategy))

    assert build(plan({"a": 1, "b": 2})) == build(plan({"b": 2, "a": 1}))


def test_a_builder_with_a_past_gives_what_a_new_one_gives() -> None:
    builder = SnapshotBuilder(max_resource_bytes=LIMIT)
    builder.build(
        fleet_plan(cluster_plan("gone", weighted(MEMBERS)), cluster_plan("llama", weighted(MEMBERS[:1])))
    )
    assert builder.build(plain()) == build(plain())


def reweighted() -> FleetPlan:
    first, *rest = plain().clusters
    changed = replace(first, endpoints=weighted(MEMBERS, 1, 2, 3, 4))
    return fleet_plan(changed, *rest)


def with_strategy(**fields: object) -> FleetPlan:
    strategy = replace(STRATEGY, **fields)  # type: ignore[arg-type]
    return fleet_plan(cluster_plan("llama", weighted(MEMBERS), strategy), plain().clusters[1])


CHANGES = {
    "weights": (reweighted(), {ENDPOINT}),
    "membership": (
        fleet_plan(cluster_plan("llama", weighted(MEMBERS[1:])), plain().clusters[1]),
        {ENDPOINT},
    ),
    "health": (
        fleet_plan(
            cluster_plan("llama", weighted([replace(MEMBERS[0], health=Health.DRAINING), *MEMBERS[1:]])),
            plain().clusters[1],
        ),
        {ENDPOINT},
    ),
    "routing": (with_strategy(routing=Routing(prefix="/v1")), {ROUTE}),
    "hash policy": (with_strategy(hash_policy=()), {ROUTE}),
    "health check": (with_strategy(health_check=HealthCheck()), {CLUSTER}),
    "guards and law": (with_strategy(law="equal", version="1.0.1", description="words"), set()),
    "a zone's weight": (with_strategy(locality=Locality(weights={"a": 1, "b": 1})), {CLUSTER, ENDPOINT}),
    "listener port": (replace(plain(), listener=replace(LISTENER_PLAN, port=10_001)), {LISTENER}),
    "a new service": (
        fleet_plan(*plain().clusters, cluster_plan("new", weighted(MEMBERS))),
        {CLUSTER, ENDPOINT, ROUTE},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_versions_change_only_where_content_changes(change: str) -> None:
    builder = SnapshotBuilder(max_resource_bytes=LIMIT)
    before = builder.build(plain())
    plan, expected = CHANGES[change]
    after = builder.build(plan)
    assert changed_types(before, after) == expected
    assert (before.version != after.version) == bool(expected)


def test_a_weight_change_touches_one_resource_and_encodes_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = SnapshotBuilder(max_resource_bytes=LIMIT)
    before = builder.build(plain())
    for name in ("snapshot.cluster", "snapshot.listener", "routes.virtual_host", "endpoints.lb_endpoint"):
        monkeypatch.setattr(f"controlplane.xds.build.{name}", None)
    after = builder.build(reweighted())
    for type_url in (CLUSTER, LISTENER, ROUTE):
        for name, resource in after.sets[type_url].resources.items():
            assert resource is before.sets[type_url].resources[name]
    unchanged, moved = "qwen", "llama"
    assert after.sets[ENDPOINT].resources[unchanged] is before.sets[ENDPOINT].resources[unchanged]
    assert after.sets[ENDPOINT].resources[moved] != before.sets[ENDPOINT].resources[moved]


def test_the_route_table_equals_the_library_s_own_encoding() -> None:
    clusters = (cluster_plan("llama", weighted(MEMBERS)), cluster_plan("llama/canary"))
    plan = fleet_plan(*clusters, routes=(canary_route(canary_parts=10_000),))
    message = RouteConfiguration(
        name="trimtab",
        virtual_hosts=[virtual_host(route) for route in plan.routes],
        validate_clusters=False,
    )
    assert build(plan).sets[ROUTE].resources["trimtab"].body == bytes(Any.pack(message))


def test_a_canary_comes_first_with_its_zero_written_down_and_its_matches_before_it() -> None:
    clusters = (cluster_plan("llama", weighted(MEMBERS)), cluster_plan("llama/canary"))
    (host,) = routes_of(fleet_plan(*clusters, routes=(canary_route(canary_parts=0),))).virtual_hosts
    *matched, last = host.routes
    assert [action_of(route).cluster for route in matched] == ["llama/canary", "llama/canary"]
    split = action_of(last).weighted_clusters
    assert split is not None
    assert split.use_hash_policy is True
    assert [(each.name, each.weight) for each in split.clusters] == [
        ("llama/canary", 0),
        ("llama", TOTAL_PARTS),
    ]
    for route in host.routes:
        assert len(action_of(route).hash_policy) == 1


def test_a_single_cluster_needs_no_split_and_gets_default_domains_and_timeouts() -> None:
    (host, _) = routes_of(plain()).virtual_hosts
    assert host.domains == ["llama", "llama:*"]
    (route,) = host.routes
    action = action_of(route)
    assert (action.cluster, action.weighted_clusters) == ("llama", None)
    assert action.timeout == timedelta(0)
    assert action.idle_timeout == timedelta(minutes=5)
    assert action.retry_policy is not None
    assert action.retry_policy.retry_on == "connect-failure,refused-stream,reset-before-request"


def test_hash_policies_keep_their_order_and_retries_can_be_off() -> None:
    policies = (
        HashPolicy(kind="header", name="x-session-id", terminal=True),
        HashPolicy(kind="cookie", name="session", ttl_seconds=0, path="/v1"),
        HashPolicy(kind="cookie", name="given"),
        HashPolicy(kind="query_parameter", name="user"),
        HashPolicy(kind="source_ip"),
    )
    plan = with_strategy(hash_policy=policies, routing=Routing(retry=Retry(attempts=0)))
    action = action_of(routes_of(plan).virtual_hosts[0].routes[0])
    header, cookie, given_cookie, parameter, source = action.hash_policy
    assert header.header is not None
    assert (header.header.header_name, header.terminal) == ("x-session-id", True)
    assert cookie.cookie is not None
    assert (cookie.cookie.ttl, cookie.cookie.path, cookie.terminal) == (timedelta(0), "/v1", False)
    assert given_cookie.cookie is not None
    assert given_cookie.cookie.ttl is None
    assert parameter.query_parameter is not None
    assert source.connection_properties is not None
    assert source.connection_properties.source_ip is True
    assert action.retry_policy is None


def maglev_of(plan: FleetPlan) -> Maglev:
    message = unpack(build(plan), CLUSTER, "llama")
    assert isinstance(message, Cluster)
    assert message.load_balancing_policy is not None
    assert message.common_lb_config is None
    extension = message.load_balancing_policy.policies[0].typed_extension_config
    assert extension is not None
    assert extension.typed_config is not None
    policy = extension.typed_config.unpack()
    assert isinstance(policy, Maglev)
    return policy


@pytest.mark.parametrize(
    ("zones", "expected"),
    [({}, False), ({"a": 1}, False), ({"a": 1, "b": 1}, True), ({"a": 1, "b": 1, "c": 1}, True)],
)
def test_zones_weigh_only_when_every_present_one_has_a_weight(
    zones: dict[str, int],
    *,
    expected: bool,
) -> None:
    policy = maglev_of(with_strategy(locality=Locality(weights=zones)))
    assert (policy.locality_weighted_lb_config is not None) == expected
    assert policy.table_size == 65_537


def test_the_listener_asks_for_routes_over_the_same_stream() -> None:
    message = unpack(build(plain()), LISTENER, "trimtab")
    assert isinstance(message, Listener)
    config = message.filter_chains[0].filters[0].typed_config
    assert config is not None
    manager = config.unpack()
    assert isinstance(manager, HttpConnectionManager)
    assert manager.rds is not None
    assert manager.rds.config_source is not None
    assert manager.rds.config_source.ads is not None
    assert manager.access_log == []


def test_a_strategy_is_only_compared_where_it_matters() -> None:
    later = Strategy(schema=1, version="9.9.9")
    assert build(with_strategy(version="9.9.9")).version == build(plain()).version
    assert later != STRATEGY
