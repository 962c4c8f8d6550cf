"""The protocol of one stream, pure: requests and snapshots in, responses out, time as an argument.

``on_request`` and ``on_snapshot`` only note; ``poll`` gives one response at a time, when the stream is
ready to write. The two variants differ in how a request changes a subscription and in whether a
response replaces what the client has.
"""

from __future__ import annotations

import abc
from typing import ClassVar

from controlplane.model.fleet import TypeStatus
from controlplane.model.resources import Snapshot
from controlplane.xds.server.channel import Channel
from controlplane.xds.server.messages import Answer, Limits, Push, Refusal, RefusalCode, Request, Variant
from controlplane.xds.server.pusher import Pusher, Select


class Machine(abc.ABC):
    """One stream of either variant.

    `fixed_type` is the type of a per-type service; empty for the aggregated one. `nonce_prefix` makes
    nonces differ from those of other streams, so that a reconnecting client's old nonce matches none.
    """

    variant: ClassVar[Variant]

    def __init__(
        self,
        *,
        select: Select,
        limits: Limits,
        nonce_prefix: str,
        ack_timeout_seconds: float,
        fixed_type: str,
    ) -> None:
        self._limits = limits
        self._fixed_type = fixed_type
        self._pusher = Pusher(
            select=select, nonce_prefix=nonce_prefix, ack_timeout_seconds=ack_timeout_seconds
        )

    def on_request(self, request: Request, now: float) -> Answer | Refusal | None:
        """Take one request: a subscription, an answer to a response, or both.

        Gives the answer if the request holds one (a stale nonce answers nothing), or a refusal if the
        stream must end. A subscription counts whatever the nonce says (xDS rule 7).
        """
        type_url = request.type_url or self._fixed_type
        channel = self._pusher.channel(type_url)
        refusal = self._refuse(type_url, request, channel)
        if refusal is not None:
            return refusal
        answer = self._pusher.answer(type_url, request.nonce, request.error, now) if request.nonce else None
        if answer is None or answer.type_url == type_url:
            self._subscribe(channel or self._pusher.open(type_url, now), request, is_first=channel is None)
        return answer

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Take a newer snapshot; the latest wins."""
        if snapshot is not self._pusher.snapshot:
            self._pusher.on_snapshot(snapshot)

    def poll(self, now: float) -> Push | None:
        """Give the next response to write, noted as sent; `None` if there is nothing to send now."""
        return self._pusher.poll(now)

    @property
    def wake_at(self) -> float | None:
        """When to `poll` again even if nothing happens; `None`: not before something does."""
        return self._pusher.wake_at

    def statuses(self) -> tuple[TypeStatus, ...]:
        """Give the state of every type on this stream."""
        return self._pusher.statuses()

    @abc.abstractmethod
    def _subscribe(self, channel: Channel, request: Request, *, is_first: bool) -> None:
        """Apply the request's names. `is_first`: nothing was asked of this type on the stream yet."""

    def _refuse(self, type_url: str, request: Request, channel: Channel | None) -> Refusal | None:
        if not type_url:
            return _invalid("empty_type", "type_url is empty on an aggregated stream")
        if self._fixed_type and type_url != self._fixed_type:
            return _invalid("wrong_type", f"this service serves {self._fixed_type} only")
        if channel is None and self._pusher.type_count >= self._limits.types:
            return _exhausted("types", f"more than {self._limits.types} types on one stream")
        held = len(channel.watch.subscription.names) if channel is not None else 0
        kept = held if self.variant is Variant.DELTA else 0
        asked = (*request.names, *request.dropped, *request.versions)
        if max(kept + len(request.names), len(asked) - len(request.names)) > self._limits.names_per_type:
            return _exhausted("names", f"more than {self._limits.names_per_type} names of one type")
        if any(len(name) > self._limits.name_characters for name in asked):
            return _invalid(
                "name_length", f"a name is longer than {self._limits.name_characters} characters"
            )
        return None


def _invalid(reason: str, detail: str) -> Refusal:
    return Refusal(RefusalCode.INVALID_ARGUMENT, reason, detail)


def _exhausted(reason: str, detail: str) -> Refusal:
    return Refusal(RefusalCode.RESOURCE_EXHAUSTED, reason, detail)
