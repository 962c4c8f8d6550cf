"""The paths of the admin API, and what answers each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from controlplane.ops import views
from controlplane.runtime.state import StateReader, StateView


@dataclass(frozen=True, slots=True)
class Answer:
    """What one route gives: a document, or `None` with why there is none."""

    document: views.Document | None
    missing: str = ""
    status: HTTPStatus = HTTPStatus.OK


@dataclass(frozen=True, slots=True)
class Route:
    """A path whose ``{}`` parts match anything, and what answers it."""

    path: str
    answer: Callable[[StateReader, tuple[str, ...], Mapping[str, str]], Answer]

    def match(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """Give the variable parts if the path fits."""
        own = self.path.strip("/").split("/")
        if len(own) != len(parts):
            return None
        pairs = list(zip(own, parts, strict=True))
        if any(mine not in ("{}", theirs) for mine, theirs in pairs):
            return None
        return tuple(theirs for mine, theirs in pairs if mine == "{}")


def _index(_state: StateReader, _variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    paths = ["/metrics", *(route.path for route in ROUTES if route.path != "/")]
    return Answer({"schema_version": views.SCHEMA_VERSION, "paths": sorted(paths)})


def _healthz(_state: StateReader, _variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    return Answer({"schema_version": views.SCHEMA_VERSION, "is_alive": True})


def _readyz(state: StateReader, _variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    view = state.view()
    return Answer(
        {
            "schema_version": views.SCHEMA_VERSION,
            "is_ready": view.is_ready,
            "reason": view.not_ready_reason,
        },
        status=HTTPStatus.OK if view.is_ready else HTTPStatus.SERVICE_UNAVAILABLE,
    )


def _status(state: StateReader, _variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    return Answer(views.status_view(state.view()))


def _node(state: StateReader, variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    return Answer(views.node_view(state.view(), variables[0]), f"no node `{variables[0]}` is connected")


def _services(state: StateReader, _variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    return Answer(views.services_view(state.view()))


def _service(state: StateReader, variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    return Answer(views.service_view(state.view(), variables[0]), _unknown(variables[0]))


def _weights(state: StateReader, variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    return Answer(views.weights_view(state.view(), variables[0]), _unknown(variables[0]))


def _explain(state: StateReader, variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    view = state.view()
    return Answer(views.explain_view(view, variables[0]), _unexplained(view, variables[0]))


def _explain_endpoint(state: StateReader, variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    view = state.view()
    service, endpoint = variables
    found = views.explain_endpoint_view(view, service, endpoint)
    if found is not None or views.explain_view(view, service) is None:
        return Answer(found, _unexplained(view, service))
    return Answer(None, f"service `{service}` has no endpoint `{endpoint}`")


def _unexplained(view: StateView, service: str) -> str:
    if views.weights_view(view, service) is None:
        return _unknown(service)
    return f"nothing has been decided for service `{service}` yet"


def _history(state: StateReader, variables: tuple[str, ...], query: Mapping[str, str]) -> Answer:
    accepted = state.history(variables[0])
    if not accepted and views.service_view(state.view(), variables[0]) is None:
        return Answer(None, _unknown(variables[0]))
    with_bodies = query.get("bodies", "") in {"1", "true"}
    return Answer(views.history_view(variables[0], accepted, with_bodies=with_bodies))


def _canary(state: StateReader, variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    return Answer(views.canary_view(state.view(), variables[0]), f"service `{variables[0]}` has no canary")


def _canaries(state: StateReader, _variables: tuple[str, ...], _query: Mapping[str, str]) -> Answer:
    return Answer(views.canaries_view(state.view()))


def _unknown(service: str) -> str:
    return f"no service `{service}` is known"


ROUTES = (
    Route("/", _index),
    Route("/healthz", _healthz),
    Route("/readyz", _readyz),
    Route("/v1/status", _status),
    Route("/v1/nodes/{}", _node),
    Route("/v1/services", _services),
    Route("/v1/services/{}", _service),
    Route("/v1/services/{}/weights", _weights),
    Route("/v1/services/{}/explain", _explain),
    Route("/v1/services/{}/explain/{}", _explain_endpoint),
    Route("/v1/services/{}/history", _history),
    Route("/v1/services/{}/canary", _canary),
    Route("/v1/canaries", _canaries),
)
