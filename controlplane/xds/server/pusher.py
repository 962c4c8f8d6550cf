"""What goes next on one stream: order between types, waiting for answers, nonces.

Shared by both variants of the protocol, and pure: no socket, no clock. A response is chosen when the
stream is ready to write it, never queued, so it always fits the newest snapshot and subscription and
memory stays bounded (xDS rules 12 and 17).

The order (xDS rule 1): clusters, their endpoints, listeners, routes; once these are acknowledged, the
removal of clusters, then of endpoints. Listeners and routes wait for the answers of clusters and
endpoints before them, at most `ack_timeout_seconds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from controlplane.model.fleet import TypeStatus
from controlplane.model.resources import CLUSTER, ENDPOINT, TYPE_ORDER, ResourceSet, Snapshot
from controlplane.xds.cache.order import BACKENDS, CHILD_OF, ROUTING, in_order
from controlplane.xds.cache.watch import Parcel, Watch
from controlplane.xds.server.channel import Channel
from controlplane.xds.server.hold import Hold
from controlplane.xds.server.messages import Answer, Push


class Select(Protocol):
    """How a variant chooses the next response of one type."""

    def __call__(self, watch: Watch, current: ResourceSet, /, *, may_remove: bool) -> Parcel | None:
        """Give the next response, or `None` if the client lacks nothing."""
        ...


class Pusher:
    """The sending side of one stream."""

    def __init__(self, *, select: Select, nonce_prefix: str, ack_timeout_seconds: float) -> None:
        self._select = select
        self._nonce_prefix = nonce_prefix
        self._pushes = 0
        self._snapshot: Snapshot | None = None
        self._channels: dict[str, Channel] = {}
        self._routing_hold = Hold(limit_seconds=ack_timeout_seconds)
        self._removal_hold = Hold(limit_seconds=ack_timeout_seconds)
        self._wake_at: float | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot the stream is being brought to."""
        return self._snapshot

    @property
    def type_count(self) -> int:
        """Types the client has asked for."""
        return len(self._channels)

    @property
    def wake_at(self) -> float | None:
        """When `poll` should be asked again even if nothing happens."""
        return self._wake_at

    def channel(self, type_url: str) -> Channel | None:
        """Give the channel of a type, if the client has asked for the type."""
        return self._channels.get(type_url)

    def open(self, type_url: str, now: float) -> Channel:
        """Start the channel of a type."""
        channel = Channel(type_url=type_url, now=now)
        self._channels = {
            name: self._channels.get(name, channel) for name in in_order({*self._channels, type_url})
        }
        return channel

    def current(self, type_url: str) -> ResourceSet | None:
        """Give what the snapshot has of a type; `None` when it does not carry the type."""
        return self._snapshot.get(type_url) if self._snapshot is not None else None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Take a newer snapshot. One that was not sent yet is forgotten: latest wins."""
        for type_url, channel in self._channels.items():
            before, after = self.current(type_url), snapshot.get(type_url)
            if after is not None and (before is None or before.version != after.version):
                channel.watch.content_changed()
                if channel.awaited:
                    channel.awaited &= {
                        name for each in after.resources.values() for name in each.references
                    }
        self._snapshot = snapshot

    def answer(self, type_url: str, nonce: str, error: str | None, now: float) -> Answer | None:
        """Take the answer to a response.

        The nonce decides, as nonces are unique on a stream: a known client answers under another
        type's name.
        """
        channels = [self._channels[type_url]] if type_url in self._channels else []
        for channel in [*channels, *self._channels.values()]:
            parcel = channel.sent_as(nonce)
            if parcel is None:
                continue
            taken = channel.land(nonce, error, self.current(channel.type_url), now)
            if error is not None:
                self._force_children(channel, channel.news_since(parcel))
            return taken
        return None

    def poll(self, now: float) -> Push | None:
        """Choose the next response and note it as sent; `None` if there is nothing to send now."""
        self._wake_at = None
        for channel, current in self._served():
            may_remove = self._may_remove(channel, current, now)
            parcel = self._select(channel.watch, current, may_remove=may_remove)
            if parcel is None:
                channel.settle(current, now)
            elif self._may_send(channel.type_url, now):
                return self._push(channel, parcel, now)
        return None

    def statuses(self) -> tuple[TypeStatus, ...]:
        """Give the state of each known type, in sending order."""
        return tuple(
            channel.status(self.current(type_url))
            for type_url, channel in self._channels.items()
            if type_url in TYPE_ORDER
        )

    def _served(self) -> Iterator[tuple[Channel, ResourceSet]]:
        for type_url, channel in self._channels.items():
            current = self.current(type_url)
            if current is not None:
                yield channel, current

    def _push(self, channel: Channel, parcel: Parcel, now: float) -> Push:
        self._pushes += 1
        push = Push(parcel, f"{self._nonce_prefix}{self._pushes}")
        news = channel.watch.sent(parcel)
        channel.launch(push, now)
        if channel.type_url in CHILD_OF:
            references = {name for resource in news for name in resource.references}
            channel.awaited |= references
            self._force_children(channel, references)
        return push

    def _force_children(self, channel: Channel, references: set[str]) -> None:
        """A changed cluster warms up anew and waits for endpoints, changed or not (xDS rule 2)."""
        child = self._channels.get(CHILD_OF.get(channel.type_url, ""))
        if child is not None:
            child.watch.force(references)

    def _may_send(self, type_url: str, now: float) -> bool:
        if type_url not in ROUTING:
            return True
        return self._passes(self._routing_hold, BACKENDS, now)

    def _passes(self, hold: Hold, needed: Iterable[str], now: float) -> bool:
        """Ask a hold that is blocked while any of the needed types is unconfirmed."""
        end = hold.until(now, is_blocked=any(self._is_unconfirmed(type_url) for type_url in needed))
        if end is not None:
            self._wake_at = end if self._wake_at is None else min(end, self._wake_at)
        return end is None

    def _is_unconfirmed(self, type_url: str) -> bool:
        """Tell whether the client has not taken a type yet, or has yet to ask for what it refers to."""
        channel = self._channels.get(type_url)
        if channel is None:
            return False
        if channel.is_waiting or channel.is_nacked:
            return True
        child = self._channels.get(CHILD_OF.get(type_url, ""))
        if child is None or not channel.awaited:
            return False
        channel.awaited -= child.watch.subscription.names
        return bool(channel.awaited)

    def _may_remove(self, channel: Channel, current: ResourceSet, now: float) -> bool:
        """Tell whether vanished resources of a type may be told (xDS rule 1, the last two steps).

        What was refused is not sent again without its kept resources either: that would be the same
        version once more.
        """
        if channel.type_url not in BACKENDS:
            return True
        if channel.nacked_version == current.version or self._is_routing_behind():
            return False
        if channel.type_url == ENDPOINT:
            clusters = self._channels.get(CLUSTER)
            return clusters is None or not (clusters.is_waiting or self._is_behind(clusters))
        return self._passes(self._removal_hold, ROUTING, now)

    def _is_routing_behind(self) -> bool:
        """Tell whether old listeners or routes are in use: the new ones not sent yet, or refused."""
        channels = [self._channels[type_url] for type_url in ROUTING if type_url in self._channels]
        return any(channel.is_nacked or self._is_behind(channel) for channel in channels)

    def _is_behind(self, channel: Channel) -> bool:
        """Tell whether anything of a type is still to be sent, removals included."""
        current = self.current(channel.type_url)
        return current is not None and self._select(channel.watch, current, may_remove=True) is not None
