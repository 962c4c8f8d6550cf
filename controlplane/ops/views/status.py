"""The fleet: what Envoy has, node by node and type by type, and how the sources are doing."""

from __future__ import annotations

from controlplane import __version__
from controlplane.model.fleet import NodeStatus, SyncState, TypeStatus
from controlplane.model.health import SourceHealth
from controlplane.ops.views.common import Document, age, document, short_type
from controlplane.ops.views.services import service_summary
from controlplane.runtime.state import StateView

_WORST_FIRST = (SyncState.NACKED, SyncState.STALE, SyncState.NOT_SENT, SyncState.SYNCED)


def status_view(view: StateView) -> Document:
    """Describe the whole control plane: readiness, sources, services, nodes."""
    fleet = view.fleet
    return document(
        view,
        trimtab_version=__version__,
        is_ready=view.is_ready,
        not_ready_reason=view.not_ready_reason,
        started_from_checkpoint=view.started_from_checkpoint,
        last_tick_age_seconds=age(view.at_seconds, view.last_tick_seconds),
        store_degraded=view.store_degraded,
        versions={short_type(url): version for url, version in sorted(view.versions.items())},
        sources=[_source(source, view.at_seconds) for source in sorted(view.sources, key=lambda s: s.name)],
        services=[service_summary(service, view.at_seconds) for service in view.services],
        nodes=[_node(node, fleet.at_seconds) for node in sorted(fleet.nodes, key=lambda n: n.node_id)],
    )


def node_view(view: StateView, node_id: str) -> Document | None:
    """Describe one node; `None` if it is not connected. A node with several streams appears as one
    entry of `connections` for each.
    """
    found = [node for node in view.fleet.nodes if node.node_id == node_id]
    if not found:
        return None
    now = view.fleet.at_seconds
    return document(view, node=node_id, connections=[_node(node, now) for node in found])


def _node(node: NodeStatus, now_seconds: float) -> Document:
    states = {status.state for status in node.types}
    return {
        "node_id": node.node_id,
        "cluster": node.cluster,
        "group": node.group,
        "peer": node.peer,
        "user_agent": node.user_agent,
        "variant": node.variant,
        "connected_for_seconds": age(now_seconds, node.connected_at_seconds),
        "last_contact_age_seconds": age(now_seconds, node.last_contact_seconds),
        "state": next((state for state in _WORST_FIRST if state in states), SyncState.NOT_SENT),
        "types": [_type(status, now_seconds) for status in node.types],
    }


def _type(status: TypeStatus, now_seconds: float) -> Document:
    return {
        "type": short_type(status.type_url),
        "type_url": status.type_url,
        "state": status.state,
        "age_seconds": age(now_seconds, status.changed_at_seconds),
        "intended_version": status.intended_version,
        "sent_version": status.sent_version,
        "acked_version": status.acked_version,
        "nacked_version": status.nacked_version,
        "nack_message": status.nack_message,
    }


def _source(source: SourceHealth, now_seconds: float) -> Document:
    return {
        "name": source.name,
        "state": source.state,
        "in_state_for_seconds": age(now_seconds, source.since_seconds),
        "last_success_age_seconds": age(now_seconds, source.last_success_seconds),
        "consecutive_failures": source.consecutive_failures,
        "last_error": source.last_error,
    }
