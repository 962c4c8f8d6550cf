"""What several views share."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeAlias

from controlplane.model.problems import Rejected
from controlplane.runtime.state import RejectedDocument, ServiceView, StateView

SCHEMA_VERSION = 1

Document: TypeAlias = dict[str, Any]
"""JSON types only, once `strict_json.plain` has seen it."""


def document(view: StateView, **fields: Any) -> Document:  # noqa: ANN401 - JSON
    """Start a document about one moment."""
    return {"schema_version": SCHEMA_VERSION, "at_seconds": view.at_seconds, **fields}


def find_service(view: StateView, name: str) -> ServiceView | None:
    """Find a service by name; `None` if no accepted strategy has it."""
    return next((service for service in view.services if service.service == name), None)


def age(now_seconds: float, then_seconds: float | None) -> float | None:
    """Seconds from then to now, never negative; `None` if it never happened."""
    return None if then_seconds is None else max(0.0, now_seconds - then_seconds)


def problems(rejected: Rejected) -> list[Document]:
    """List problems with path, reason and value."""
    return [
        {"path": problem.path, "reason": problem.reason, "value": problem.value}
        for problem in rejected.problems
    ]


def rejection(found: RejectedDocument | None, now_seconds: float) -> Document | None:
    """Describe a refused document."""
    if found is None:
        return None
    return {
        "key": found.key,
        "revision": found.revision,
        "age_seconds": age(now_seconds, found.at_seconds),
        "problems": problems(found.rejected),
    }


def short_type(type_url: str) -> str:
    """Name a resource type by its last part: ``Cluster``."""
    return type_url.rpartition(".")[2]


def iso(unix_seconds: float) -> str | None:
    """Write a moment as UTC; `None` outside the calendar's range."""
    try:
        moment = dt.datetime.fromtimestamp(unix_seconds, tz=dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
