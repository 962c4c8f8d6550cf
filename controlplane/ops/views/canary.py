"""Canaries: what was asked, where the rollout stands, and what both subsets look like."""

from __future__ import annotations

import math

from controlplane.model.rollout import TOTAL_PARTS, SubsetObservation
from controlplane.ops.views.common import Document, age, document, find_service, rejection
from controlplane.runtime.state import CanaryView, ServiceView, StateView


def canaries_view(view: StateView) -> Document:
    """List all canaries, by service, and canary documents that were refused."""
    now = view.at_seconds
    return document(
        view,
        canaries=[
            _canary(service, now) for service in view.services if service.canary or service.rejected_canary
        ],
    )


def canary_view(view: StateView, name: str) -> Document | None:
    """Describe one service's canary; `None` if it has no canary document, good or bad."""
    service = find_service(view, name)
    if service is None or not (service.canary or service.rejected_canary):
        return None
    return document(view, **_canary(service, view.at_seconds))


def _canary(service: ServiceView, now_seconds: float) -> Document:
    return {
        "service": service.service,
        **(_rollout(service.canary, now_seconds) if service.canary else {"phase": None}),
        "rejected": rejection(service.rejected_canary, now_seconds),
    }


def _rollout(found: CanaryView, now_seconds: float) -> Document:
    spec, state = found.spec, found.state
    return {
        "phase": state.phase,
        "reason": state.reason,
        "desired": spec.desired,
        "retry": spec.retry,
        "hash": found.spec_hash,
        "description": spec.description,
        "step_index": state.step_index,
        "steps": [
            {
                "weight_percent": step.weight_percent,
                "hold_seconds": step.hold_seconds,
                "gate": step.gate,
            }
            for step in spec.steps
        ],
        "set_weight_percent": 100.0 * state.canary_parts / TOTAL_PARTS,
        "actual_weight_percent": _actual_percent(found),
        "in_phase_for_seconds": age(now_seconds, state.entered_at),
        "judged_age_seconds": age(now_seconds, state.judged_at or None),
        "verdict": state.last_verdict,
        "no_data_for_seconds": age(now_seconds, state.no_data_since),
        "consecutive_failures": state.consecutive_failures,
        "total_failures": state.total_failures,
        "limits": {
            "consecutive_failures": spec.analysis.consecutive_failures,
            "total_failures": spec.analysis.total_failures,
            "no_data_deadline_seconds": spec.analysis.no_data_deadline_seconds,
            "min_requests": spec.analysis.min_requests,
        },
        "canary": _subset(found.canary) | {"selector": dict(sorted(spec.canary.items()))},
        "baseline": _subset(found.baseline) | {"selector": dict(sorted(spec.baseline.items()))},
    }


def _actual_percent(found: CanaryView) -> float | None:
    """Share of the window's requests that the canary served; `None` where requests are not counted."""
    if found.canary is None or found.baseline is None:
        return None
    requests = found.canary.window_requests, found.baseline.window_requests
    total = sum(requests)
    if not math.isfinite(total) or total <= 0:
        return None
    return 100.0 * requests[0] / total


def _subset(found: SubsetObservation | None) -> Document:
    if found is None:
        return {"endpoints": None, "healthy": None, "window_requests": None, "figures": {}}
    return {
        "endpoints": found.endpoints,
        "healthy": found.healthy,
        "window_requests": found.window_requests,
        "figures": dict(sorted(found.figures.items())),
    }
