"""One type on one stream: responses under way, what was accepted, what was refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controlplane.model.fleet import SyncState, TypeStatus
from controlplane.model.resources import Resource, ResourceSet
from controlplane.xds.cache.watch import Parcel, Watch
from controlplane.xds.server.messages import Answer, Push

MAX_FLIGHTS = 32
"""Unanswered responses remembered per type. A client that never answers costs no more than this."""

MAX_MESSAGE_CHARACTERS = 2000
"""A NACK message is cut to this: it comes from outside and is kept."""

_GAP = " … "


def excerpt(message: str, limit: int = MAX_MESSAGE_CHARACTERS) -> str:
    """Cut a NACK message in its middle: Envoy writes the whole resource, and then what is wrong."""
    if len(message) <= limit:
        return message
    head = limit // 4
    return message[:head] + _GAP + message[head + len(_GAP) - limit :]


@dataclass(frozen=True, slots=True)
class Flight:
    """A response that was sent and not answered yet."""

    parcel: Parcel
    sent_at: float


class Channel:
    """The acknowledgement state of one type on one stream, around its `Watch`."""

    __slots__ = (
        "_acked_version",
        "_changed_at",
        "_flights",
        "_nack_message",
        "_sent_version",
        "awaited",
        "is_nacked",
        "nacked_version",
        "type_url",
        "watch",
    )

    def __init__(self, *, type_url: str, now: float) -> None:
        self.type_url = type_url
        self.watch = Watch(type_url=type_url)
        self.awaited: set[str] = set()
        """Names that resources sent on this channel refer to, which the client may still ask for."""
        self.is_nacked = False
        """The client stands by a refusal: of its last answer, or of a resource still current."""
        self._flights: dict[str, Flight] = {}
        self._sent_version = ""
        self._acked_version = ""
        self.nacked_version = ""
        """The set version of the refusal the client stands by; empty when it stands by none."""
        self._nack_message = ""
        self._changed_at = now

    @property
    def is_waiting(self) -> bool:
        """A response has not been answered yet."""
        return bool(self._flights)

    def launch(self, push: Push, now: float) -> None:
        """Remember a response, before it is written (xDS rule 7)."""
        while len(self._flights) >= MAX_FLIGHTS:
            del self._flights[next(iter(self._flights))]
        self._flights[push.nonce] = Flight(push.parcel, now)
        self._sent_version = push.parcel.version
        self._changed_at = now

    def sent_as(self, nonce: str) -> Parcel | None:
        """Give the response that a nonce belongs to; `None` if it is not under way."""
        flight = self._flights.get(nonce)
        return flight.parcel if flight is not None else None

    def land(self, nonce: str, error: str | None, current: ResourceSet | None, now: float) -> Answer | None:
        """Take the answer to a response; `None` if the nonce is stale, which answers nothing.

        A client works in order, so the answer also settles every response before this one.
        """
        flight = self._flights.get(nonce)
        if flight is None:
            return None
        for earlier in list(self._flights):
            del self._flights[earlier]
            if earlier == nonce:
                break
        self._changed_at = now
        if error is None:
            self._accept(flight.parcel, current)
        else:
            self._refuse(flight.parcel, error, current)
        return Answer(self.type_url, flight.parcel.version, now - flight.sent_at, error)

    def news_since(self, refused: Parcel) -> set[str]:
        """Give what a refusal turned into news: references of its resources that went out again since.

        When these went out, the first response was still expected to be taken, so they seemed to
        change nothing.
        """
        versions = {resource.name: resource.version for resource in refused.resources}
        return {
            name
            for each in self._under_way()
            if versions.get(each.name) == each.version
            for name in each.references
        }

    def settle(self, current: ResourceSet, now: float) -> None:
        """Note that the client lacks nothing of the current set."""
        if self._flights or self._acked_version == current.version:
            return
        if self.is_nacked and (current.version == self.nacked_version or self.watch.has_refused(current)):
            return
        self._clear_nack()
        self._sent_version = self._acked_version = current.version
        self._changed_at = now

    def status(self, current: ResourceSet | None) -> TypeStatus:
        """Give the state that operators see."""
        intended = current.version if current is not None else ""
        return TypeStatus(
            type_url=self.type_url,
            state=self._state(intended),
            intended_version=intended,
            sent_version=self._sent_version,
            acked_version=self._acked_version,
            nacked_version=self.nacked_version,
            nack_message=self._nack_message,
            changed_at_seconds=self._changed_at,
        )

    def _under_way(self) -> Iterator[Resource]:
        for flight in self._flights.values():
            yield from flight.parcel.resources

    def _state(self, intended: str) -> SyncState:
        if not self._sent_version:
            return SyncState.NOT_SENT
        if self._flights:
            return SyncState.STALE
        if self.is_nacked:
            return SyncState.NACKED
        return SyncState.SYNCED if self._acked_version == intended else SyncState.STALE

    def _accept(self, parcel: Parcel, current: ResourceSet | None) -> None:
        self.watch.accepted(parcel)
        self.is_nacked = current is not None and self.watch.has_refused(current)
        if not self.is_nacked:
            self._acked_version = parcel.version
            self._clear_nack()

    def _clear_nack(self) -> None:
        self.is_nacked = False
        self.nacked_version = self._nack_message = ""

    def _refuse(self, parcel: Parcel, error: str, current: ResourceSet | None) -> None:
        self.watch.refused(parcel, current)
        self.is_nacked = True
        self.nacked_version = parcel.version
        self._nack_message = excerpt(error)
        # References of refused resources will not be asked for, unless they are under way once more.
        self.awaited &= {name for each in self._under_way() for name in each.references}
