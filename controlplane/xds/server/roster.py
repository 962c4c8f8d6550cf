"""Who is connected: caps, waking, and the state of the fleet."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from controlplane.config import XdsSettings
from controlplane.model.fleet import FleetStatus, NodeStatus, TypeStatus
from controlplane.xds.server.messages import Node, Refusal, RefusalCode
from controlplane.xds.server.stream import Stream

WAKE_BATCH = 64
"""Streams woken in one turn of the event loop, so that a large fleet does not block it."""


class Roster:
    """The open streams of one server."""

    def __init__(self, *, settings: XdsSettings, group_of: Callable[[Node], str]) -> None:
        self._settings = settings
        self._group_of = group_of
        self._streams: dict[Stream, None] = {}
        self._per_node: Counter[str] = Counter()
        self._is_closing = False

    def __len__(self) -> int:
        """Count the open streams."""
        return len(self._streams)

    def refuse(self) -> Refusal | None:
        """Tell why no further stream may open, if so."""
        if self._is_closing:
            return Refusal(RefusalCode.UNAVAILABLE, "closing", "the server is shutting down")
        if len(self._streams) >= self._settings.max_streams:
            return Refusal(
                RefusalCode.RESOURCE_EXHAUSTED, "streams", f"{self._settings.max_streams} streams are open"
            )
        return None

    def enter(self, stream: Stream) -> None:
        """Add a stream whose node is not known yet."""
        self._streams[stream] = None

    def admit(self, node: Node) -> Refusal | str:
        """Give the group of a stream's node, or refuse one stream too many of the same node."""
        limit = self._settings.max_streams_per_node
        if node.id and self._per_node[node.id] >= limit:
            return Refusal(
                RefusalCode.RESOURCE_EXHAUSTED, "streams_per_node", f"the node has {limit} streams"
            )
        self._per_node[node.id] += 1
        return self._group_of(node)

    def leave(self, stream: Stream) -> None:
        """Forget a stream and everything about it."""
        del self._streams[stream]
        if stream.node is not None:
            self._per_node[stream.node.id] -= 1
            if self._per_node[stream.node.id] <= 0:
                del self._per_node[stream.node.id]

    def wake(self, group: str) -> None:
        """Wake the streams of a group, a batch at each turn of the event loop."""
        self._wake_from([stream for stream in self._streams if stream.group == group], 0)

    def close(self) -> None:
        """Refuse new streams and end the open ones."""
        self._is_closing = True
        for stream in self._streams:
            stream.close()

    def status(self, now: float) -> FleetStatus:
        """Give every connected node; the streams of one connection of a node are one entry."""
        known = [(stream, stream.node) for stream in self._streams if stream.node is not None]
        known.sort(key=lambda pair: (pair[1].id, pair[0].peer, pair[0].machine.variant, pair[0].group))
        nodes = [
            _node_status([stream for stream, _ in streams])
            for _, streams in groupby(
                known, key=lambda pair: (pair[1].id, pair[0].peer, pair[0].machine.variant, pair[0].group)
            )
        ]
        return FleetStatus(now, tuple(nodes))

    def _wake_from(self, streams: Sequence[Stream], start: int) -> None:
        for stream in streams[start : start + WAKE_BATCH]:
            stream.wake()
        if start + WAKE_BATCH < len(streams):
            asyncio.get_running_loop().call_soon(self._wake_from, streams, start + WAKE_BATCH)


def _node_status(streams: Sequence[Stream]) -> NodeStatus:
    """Join the streams of one connection; of two streams for one type, the newer one counts."""
    newest = max(streams, key=lambda stream: stream.connected_at)
    node = newest.node or Node()
    types: dict[str, TypeStatus] = {}
    for stream in sorted(streams, key=lambda each: each.connected_at):
        types.update({status.type_url: status for status in stream.machine.statuses()})
    return NodeStatus(
        node_id=node.id,
        cluster=node.cluster,
        group=newest.group,
        peer=newest.peer,
        user_agent=node.user_agent,
        variant=newest.machine.variant.value,
        connected_at_seconds=min(stream.connected_at for stream in streams),
        last_contact_seconds=max(stream.last_contact for stream in streams),
        types=tuple(types.values()),
    )
