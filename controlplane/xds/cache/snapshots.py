"""The newest snapshot of each group of nodes."""

from __future__ import annotations

from controlplane.model.resources import Snapshot


class SnapshotCache:
    """One slot per group: the latest snapshot wins, older ones are gone.

    Groups, never nodes, so that memory does not grow with the fleet. A group without a snapshot has
    nothing to serve yet, which is not the same as an empty snapshot.
    """

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}

    def put(self, snapshot: Snapshot, *, group: str) -> bool:
        """Store a snapshot; tell whether its content differs from the one before."""
        previous = self._snapshots.get(group)
        self._snapshots[group] = snapshot
        return previous is None or previous.version != snapshot.version

    def get(self, group: str) -> Snapshot | None:
        """Give the newest snapshot of a group; `None` before the first."""
        return self._snapshots.get(group)
