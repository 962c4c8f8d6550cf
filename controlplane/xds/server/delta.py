"""Delta: requests add and remove names, responses add and remove resources."""

from __future__ import annotations

from typing import ClassVar

from controlplane.xds.cache.watch import Watch
from controlplane.xds.server.channel import Channel
from controlplane.xds.server.machine import Machine
from controlplane.xds.server.messages import Limits, Request, Variant


class DeltaMachine(Machine):
    """One incremental stream."""

    variant: ClassVar[Variant] = Variant.DELTA

    def __init__(
        self, *, limits: Limits, nonce_prefix: str, ack_timeout_seconds: float, fixed_type: str = ""
    ) -> None:
        super().__init__(
            select=Watch.select_changed,
            limits=limits,
            nonce_prefix=nonce_prefix,
            ack_timeout_seconds=ack_timeout_seconds,
            fixed_type=fixed_type,
        )

    def _subscribe(self, channel: Channel, request: Request, *, is_first: bool) -> None:
        watch = channel.watch
        change = watch.subscription.update(
            subscribe=request.names, unsubscribe=request.dropped, is_first=is_first
        )
        watch.apply(change, current=self._pusher.current(channel.type_url))
        if is_first:
            # A reconnecting client tells what it holds, and hears of the differences only (xDS rule 8).
            watch.assume(request.versions)
            watch.excuse(request.versions)
            watch.owes_reply = watch.subscription.is_wildcard and not request.versions
