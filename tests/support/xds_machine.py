"""A stream without a network: a machine, a hand on the clock, and everything it has sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlplane.model.fleet import TypeStatus
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, Snapshot
from controlplane.xds.server.delta import DeltaMachine
from controlplane.xds.server.machine import Machine
from controlplane.xds.server.messages import Answer, Limits, Push, Refusal, Request, Variant
from controlplane.xds.server.sotw import SotwMachine

ACK_TIMEOUT = 10.0
SHORT = {CLUSTER: "CDS", ENDPOINT: "EDS", LISTENER: "LDS", ROUTE: "RDS"}


def machine_of(variant: Variant, *, fixed_type: str = "", names: int = 100) -> Machine:
    make = SotwMachine if variant is Variant.SOTW else DeltaMachine
    return make(
        limits=Limits(names_per_type=names, types=10),
        nonce_prefix="n",
        ack_timeout_seconds=ACK_TIMEOUT,
        fixed_type=fixed_type,
    )


class Bench:
    """Drives one machine. Every response is kept in `sent`; `flow` is its short form."""

    def __init__(self, variant: Variant, *, fixed_type: str = "", names: int = 100) -> None:
        self.variant = variant
        self.machine = machine_of(variant, fixed_type=fixed_type, names=names)
        self.now = 100.0
        self.sent: list[Push] = []
        self._subscribed: dict[str, tuple[str, ...]] = {}

    def ask(
        self,
        type_url: str,
        *names: str,
        drop: Iterable[str] = (),
        versions: Mapping[str, str] | None = None,
        nonce: str = "",
        error: str | None = None,
    ) -> Answer | Refusal | None:
        if self.variant is Variant.SOTW:
            self._subscribed[type_url] = names
        return self.machine.on_request(
            Request(
                type_url=type_url,
                names=names,
                dropped=tuple(drop),
                versions=versions or {},
                nonce=nonce,
                error=error,
            ),
            self.now,
        )

    def answer(self, push: Push, *, error: str | None = None) -> Answer | Refusal | None:
        """Acknowledge or refuse, with the subscription unchanged."""
        type_url = push.parcel.type_url
        return self.ask(type_url, *self._subscribed.get(type_url, ()), nonce=push.nonce, error=error)

    def publish(self, snapshot: Snapshot) -> None:
        self.machine.on_snapshot(snapshot)

    def drain(self) -> list[Push]:
        """Take all that can be sent now, unanswered."""
        taken = []
        while (push := self.machine.poll(self.now)) is not None:
            taken.append(push)
            assert len(taken) < 100, "the machine never stops sending"
        self.sent += taken
        return taken

    def settle(self) -> list[Push]:
        """Take and accept until nothing more comes."""
        taken: list[Push] = []
        while batch := self.drain():
            taken += batch
            for push in batch:
                self.answer(push)
        return taken

    def status(self, type_url: str) -> TypeStatus:
        return next(each for each in self.machine.statuses() if each.type_url == type_url)


def flow(pushes: Iterable[Push]) -> list[str]:
    """Give the short form: ``CDS a b -c``."""
    return [
        " ".join(
            [
                SHORT.get(push.parcel.type_url, push.parcel.type_url),
                *(resource.name for resource in push.parcel.resources),
                *(f"-{name}" for name in push.parcel.absent),
            ]
        )
        for push in pushes
    ]
