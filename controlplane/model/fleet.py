"""What the connected Envoys told the server: the way back, read by status and by the next tick."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SyncState(enum.StrEnum):
    """One type on one node."""

    SYNCED = "SYNCED"
    STALE = "STALE"
    """Sent, not answered yet."""
    NACKED = "NACKED"
    NOT_SENT = "NOT SENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeStatus:
    """One resource type on one node. Times are monotonic seconds of the server's clock."""

    type_url: str
    state: SyncState
    intended_version: str
    sent_version: str
    acked_version: str
    nacked_version: str = ""
    nack_message: str = ""
    changed_at_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One connected node."""

    node_id: str
    cluster: str
    group: str
    peer: str
    user_agent: str
    """Such as ``envoy 1.40.0``."""
    variant: str
    """``sotw`` or ``delta``."""
    connected_at_seconds: float
    last_contact_seconds: float
    types: tuple[TypeStatus, ...]


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """All connected nodes, sorted by id, at `at_seconds` of the server's monotonic clock."""

    at_seconds: float
    nodes: tuple[NodeStatus, ...]

    def acked_ratio(self, type_url: str, version: str) -> float:
        """Share of connected nodes that acknowledged `version` of a type; 1 without nodes."""
        states = [status for node in self.nodes for status in node.types if status.type_url == type_url]
        if not states:
            return 1.0
        return sum(status.acked_version == version for status in states) / len(states)
