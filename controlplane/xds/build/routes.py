"""Routes: one table for all services, a virtual host each."""

from __future__ import annotations

from datetime import timedelta

from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    RetryPolicy,
    RetryPolicyRetryHostPredicate,
    Route,
    RouteAction,
    RouteActionHashPolicy,
    RouteActionHashPolicyConnectionProperties,
    RouteActionHashPolicyCookie,
    RouteActionHashPolicyHeader,
    RouteActionHashPolicyQueryParameter,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
    WeightedCluster,
    WeightedClusterClusterWeight,
)
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher

from controlplane.model.plan import ClusterShare, RoutePlan
from controlplane.model.rollout import HeaderMatch
from controlplane.model.strategy import HashPolicy, Retry
from controlplane.xds.build.check import domains_of
from controlplane.xds.build.encode import embed, pack

_VIRTUAL_HOST_NUMBER = 2
"""Number of ``virtual_hosts`` in ``RouteConfiguration``."""

_HOST_SELECTION_ATTEMPTS = 128
"""How often a retry looks for a host that has not been tried yet. The looks are slots close together in
the table, which often belong to one host: of two equal hosts the failed one is found again in 15 % of
retries with 3 looks and in 0.4 % with 16; with shares of 90 and 10 % it takes about a hundred. A look
is one array access."""


class RouteEncoder:
    """Encodes the route table, and remembers each service's virtual host.

    A canary step then costs one virtual host, not all of them. Holds exactly the routes of the last
    plan.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, tuple[RoutePlan, bytes]] = {}

    def encode(self, name: str, routes: tuple[RoutePlan, ...]) -> bytes:
        """Encode a ``RouteConfiguration``, virtual hosts sorted by service."""
        kept: dict[str, tuple[RoutePlan, bytes]] = {}
        for plan in sorted(routes, key=lambda route: route.service):
            known = self._hosts.get(plan.service)
            same = known is not None and _is_same(known[0], plan)
            kept[plan.service] = known if known and same else (plan, bytes(virtual_host(plan)))
        self._hosts = kept
        # Clusters are not validated: a missing one must cost its own service a 503, not every
        # service the table. That none is missing is checked before, and kept by the order of sending.
        head, tail = (
            bytes(RouteConfiguration(name=name)),
            bytes(RouteConfiguration(validate_clusters=False)),
        )
        return b"".join((head, *(embed(_VIRTUAL_HOST_NUMBER, body) for _, body in kept.values()), tail))


def _is_same(left: RoutePlan, right: RoutePlan) -> bool:
    return left is right or _inputs(left) == _inputs(right)


def _inputs(plan: RoutePlan) -> tuple[object, ...]:
    """Give everything a virtual host's encoding depends on."""
    return (
        plan.domains,
        plan.split,
        plan.matches,
        plan.match_cluster,
        plan.strategy.routing,
        plan.strategy.hash_policy,
    )


def virtual_host(plan: RoutePlan) -> VirtualHost:
    """Describe one service: header matches first, in the document's order, then the split."""
    matched = [
        _route(f"{plan.service}/match/{index}", plan, RouteAction(cluster=plan.match_cluster), match)
        for index, match in enumerate(plan.matches)
    ]
    return VirtualHost(
        name=plan.service,
        domains=list(domains_of(plan)),
        routes=[*matched, _route(plan.service, plan, _split_action(plan.split))],
    )


def _route(name: str, plan: RoutePlan, action: RouteAction, match: HeaderMatch | None = None) -> Route:
    routing = plan.strategy.routing
    headers = (
        [HeaderMatcher(name=match.header, string_match=StringMatcher(exact=match.value))] if match else []
    )
    action.timeout = timedelta(seconds=routing.timeout_seconds)  # 0 is sent: unset would mean 15 s
    action.idle_timeout = timedelta(seconds=routing.idle_timeout_seconds)
    action.retry_policy = _retry(routing.retry)
    action.hash_policy = [_hash_policy(policy) for policy in plan.strategy.hash_policy]
    return Route(name=name, match=RouteMatch(prefix=routing.prefix, headers=headers), route=action)


def _split_action(split: tuple[ClusterShare, ...]) -> RouteAction:
    """Choose the cluster, by the request's hash where there is a choice.

    Without `use_hash_policy` Envoy draws at random for each request, and a conversation would flip
    between versions. With it, the cluster is ``hash mod total`` over intervals in list order: the
    order is the plan's (canary first), so that a growing canary only ever takes from the others.
    """
    if len(split) == 1:
        return RouteAction(cluster=split[0].cluster)
    shares = [WeightedClusterClusterWeight(name=share.cluster, weight=share.parts) for share in split]
    return RouteAction(weighted_clusters=WeightedCluster(clusters=shares, use_hash_policy=True))


def _retry(retry: Retry) -> RetryPolicy | None:
    """Describe retries. They go to another host: the hash alone would choose the failed one again."""
    if not retry.attempts or not retry.on:
        return None
    elsewhere = RetryPolicyRetryHostPredicate(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=pack(PreviousHostsPredicate()),
    )
    return RetryPolicy(
        retry_on=",".join(retry.on),
        num_retries=retry.attempts,
        retry_host_predicate=[elsewhere],
        host_selection_retry_max_attempts=_HOST_SELECTION_ATTEMPTS,
    )


def _hash_policy(policy: HashPolicy) -> RouteActionHashPolicy:
    encoded = RouteActionHashPolicy(terminal=policy.terminal)
    match policy.kind:
        case "header":
            encoded.header = RouteActionHashPolicyHeader(header_name=policy.name)
        case "cookie":
            ttl = None if policy.ttl_seconds is None else timedelta(seconds=policy.ttl_seconds)
            encoded.cookie = RouteActionHashPolicyCookie(name=policy.name, ttl=ttl, path=policy.path)
        case "query_parameter":
            encoded.query_parameter = RouteActionHashPolicyQueryParameter(name=policy.name)
        case "source_ip":
            encoded.connection_properties = RouteActionHashPolicyConnectionProperties(source_ip=True)
    return encoded
