"""State of the world: each request lists every name, each response replaces or updates."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from controlplane.model.resources import ENDPOINT, ResourceSet
from controlplane.xds.cache.subscription import FULL_SET_TYPES
from controlplane.xds.cache.watch import Parcel, Watch
from controlplane.xds.server.channel import Channel
from controlplane.xds.server.machine import Machine
from controlplane.xds.server.messages import Limits, Request, Variant


class SotwMachine(Machine):
    """One state-of-the-world stream."""

    variant: ClassVar[Variant] = Variant.SOTW

    def __init__(
        self, *, limits: Limits, nonce_prefix: str, ack_timeout_seconds: float, fixed_type: str = ""
    ) -> None:
        super().__init__(
            select=partial(_select, is_aggregated=not fixed_type),
            limits=limits,
            nonce_prefix=nonce_prefix,
            ack_timeout_seconds=ack_timeout_seconds,
            fixed_type=fixed_type,
        )

    def _subscribe(self, channel: Channel, request: Request, *, is_first: bool) -> None:
        watch = channel.watch
        watch.apply(watch.subscription.replace(request.names))
        if is_first:
            # Answered even if the client holds our version already (xDS rule 8).
            watch.owes_reply = watch.subscription.is_wildcard or bool(watch.subscription.names)


def _select(watch: Watch, current: ResourceSet, *, may_remove: bool, is_aggregated: bool) -> Parcel | None:
    """Choose the next response of one type.

    Listeners and clusters: always everything. Others: what changed (xDS rule 13); of these, only
    endpoints have a way to say "gone", an empty assignment, and it is used only on a stream where the
    removal of the cluster went before.
    """
    if current.type_url in FULL_SET_TYPES:
        return watch.select_full(current, may_remove=may_remove)
    tells_vanished = is_aggregated and current.type_url == ENDPOINT
    return watch.select_changed(current, may_remove=may_remove, tells_vanished=tells_vanished)
