"""An independent model of an Envoy: what it holds, what it asks for, how it warms up.

Written from the protocol's description, not from the server's code. It reads the server's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE
from controlplane.xds.server.messages import Request, Variant
from tests.support.xds_client import Response

POISON = "poison"
"""A response with this content in it is refused as a whole."""

CHILD = {CLUSTER: ENDPOINT, LISTENER: ROUTE}
PARENT = {child: parent for parent, child in CHILD.items()}


@dataclass
class ModelEnvoy:
    """Holds resources of four types as name → content. Requests go to `send`, in order."""

    variant: Variant
    send: Callable[[Request], None]
    holds: dict[str, dict[str, str]] = field(
        default_factory=lambda: {CLUSTER: {}, ENDPOINT: {}, LISTENER: {}, ROUTE: {}}
    )
    versions: dict[str, dict[str, str]] = field(
        default_factory=lambda: {CLUSTER: {}, ENDPOINT: {}, LISTENER: {}, ROUTE: {}}
    )
    """Delta: the versions to tell when reconnecting."""
    warming: dict[str, set[str]] = field(default_factory=lambda: {CLUSTER: set(), LISTENER: set()})
    """Parents that changed and wait for their child resource."""
    asked: dict[str, set[str]] = field(default_factory=dict)
    """Names asked for on this stream, by type."""
    nacks: int = 0

    def connect(self) -> None:
        """Start a stream: everything and, after an earlier stream, the children held."""
        self.asked = {}
        for type_url in (CLUSTER, LISTENER):
            self.send(self._first(type_url, set()))
            if self.holds[type_url]:
                self._ask_children(type_url)

    def receive(self, response: Response, *, asks_before_ack: bool) -> None:
        """Apply or refuse a response, answer it, and ask for what became interesting."""
        contents = response.contents
        if POISON in contents.values():
            self.nacks += 1
            self._answer(response, error="poison")
            return
        before = dict(self.holds[response.type_url])
        self._apply(response, contents)
        if not asks_before_ack:
            self._answer(response)
        if response.type_url in CHILD:
            self._parents_changed(response.type_url, before)
        else:
            self.warming[PARENT[response.type_url]] -= set(contents) | set(response.removed)
        if asks_before_ack:
            self._answer(response)

    def dangling(self) -> list[str]:
        """Give routes in use that point to a cluster the client cannot use."""
        usable = self.holds[CLUSTER].keys() & self.holds[ENDPOINT].keys()
        return [
            f"{name} to {target}"
            for name, target in self.holds[ROUTE].items()
            if name in self.holds[LISTENER] and target not in usable
        ]

    def _apply(self, response: Response, contents: Mapping[str, str]) -> None:
        held = self.holds[response.type_url]
        if self.variant is Variant.SOTW and response.type_url in CHILD:
            held.clear()
        held.update(contents)
        for name in response.removed:
            held.pop(name, None)
            self.versions[response.type_url].pop(name, None)
        self.versions[response.type_url].update(response.versions)

    def _parents_changed(self, type_url: str, before: Mapping[str, str]) -> None:
        now = self.holds[type_url]
        self.warming[type_url] &= now.keys()
        self.warming[type_url] |= {name for name in now if before.get(name) != now[name]}
        self._ask_children(type_url)

    def _ask_children(self, parent_type: str) -> None:
        """Ask for the children of what is held; drop those of what is gone."""
        child_type = CHILD[parent_type]
        wanted = set(self.holds[parent_type])
        for name in self.holds[child_type].keys() - wanted:
            del self.holds[child_type][name]
            self.versions[child_type].pop(name, None)
        is_first = child_type not in self.asked
        asked = self.asked.get(child_type, set())
        if wanted == asked and not (is_first and wanted):
            return
        self.asked[child_type] = wanted
        if is_first:
            self.send(self._first(child_type, wanted))
        elif self.variant is Variant.SOTW:
            self.send(Request(type_url=child_type, names=tuple(sorted(wanted))))
        else:
            added, dropped = tuple(sorted(wanted - asked)), tuple(sorted(asked - wanted))
            self.send(Request(type_url=child_type, names=added, dropped=dropped))

    def _first(self, type_url: str, names: set[str]) -> Request:
        versions = dict(self.versions[type_url]) if self.variant is Variant.DELTA else {}
        return Request(type_url=type_url, names=tuple(sorted(names)), versions=versions)

    def _answer(self, response: Response, error: str | None = None) -> None:
        names: tuple[str, ...] = ()
        if self.variant is Variant.SOTW:
            names = tuple(sorted(self.asked.get(response.type_url, set())))
        self.send(Request(type_url=response.type_url, names=names, nonce=response.nonce, error=error))
