"""Which documents are in force: a pure fold of what the document source delivers.

A document is taken whole or not at all. A refused one leaves the one before it in force; a missing
one too, flagged, because absence may be an accident (a deleted key, an emptied store) and Envoy
should keep what works. A service leaves Envoy through a document that says ``"retired": true``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from controlplane.core.parse import document_hash, parse_canary, parse_strategy
from controlplane.model.documents import Documents, RawDocument
from controlplane.model.problems import Problem, Rejected
from controlplane.model.rollout import CanarySpec
from controlplane.model.strategy import Strategy
from controlplane.model.topology import SERVICE_NAME

Spec = TypeVar("Spec", Strategy, CanarySpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(Generic[Spec]):
    """A document in force."""

    spec: Spec
    hash: str
    document: RawDocument


Reader: TypeAlias = Callable[[str, RawDocument, Mapping[str, Accepted[Spec]]], Spec | Rejected]
"""(service, document, what is in force) → what the document says, or why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The newest document of its key, which was refused."""

    document: RawDocument
    rejected: Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf(Generic[Spec]):
    """One kind of document, by service."""

    accepted: Mapping[str, Accepted[Spec]] = field(default_factory=lambda: MappingProxyType({}))
    refused: Mapping[str, Refused] = field(default_factory=lambda: MappingProxyType({}))
    missing: frozenset[str] = frozenset()
    """Services whose document is in force but gone from the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Everything people have said, as far as it is in force."""

    strategies: Shelf[Strategy] = field(default_factory=Shelf)
    canaries: Shelf[CanarySpec] = field(default_factory=Shelf)
    freezes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    is_reset: bool = False
    """The store started over: what is missing was not deleted by anybody."""

    @property
    def active(self) -> dict[str, Accepted[Strategy]]:
        """Strategies of services that Envoy should have, sorted by service."""
        found = sorted(self.strategies.accepted.items())
        return {service: accepted for service, accepted in found if not accepted.spec.retired}

    def freeze(self, service: str) -> str:
        """Tell the kill switch of one service: ``hold``, ``equal`` or empty."""
        return self.freezes.get(service, self.freezes.get("*", ""))


def accept(registry: Registry, documents: Documents) -> Registry:
    """Fold the newest documents into what is in force.

    Never raises on bad input: what is wrong becomes a `Refused` beside the document that stays.
    """
    return Registry(
        strategies=_shelve(registry.strategies, documents.strategies, _read_strategy),
        canaries=_shelve(registry.canaries, documents.canaries, _read_canary),
        freezes=documents.freezes,
        is_reset=documents.is_reset,
    )


def without_canary(registry: Registry, service: str) -> Registry:
    """Forget a canary whose document is gone and whose rollout has nothing left to protect."""
    shelf = registry.canaries
    return replace(
        registry,
        canaries=replace(
            shelf,
            accepted={name: found for name, found in shelf.accepted.items() if name != service},
            missing=shelf.missing - {service},
        ),
    )


def domains_of(service: str, strategy: Strategy) -> tuple[str, ...]:
    """Envoy virtual host domains of a service: its own, or its name with and without a port."""
    return strategy.routing.domains or (service, f"{service}:*")


def _shelve(
    shelf: Shelf[Spec],
    documents: Mapping[str, RawDocument],
    read: Reader[Spec],
) -> Shelf[Spec]:
    accepted, refused = dict(shelf.accepted), {}
    for service, document in sorted(documents.items()):
        current = accepted.get(service)
        if current is not None and current.document.body == document.body:
            accepted[service] = replace(current, document=document)
            continue
        spec = _name_problem(service, document) or read(service, document, accepted)
        if isinstance(spec, Rejected):
            refused[service] = Refused(document=document, rejected=spec)
        else:
            accepted[service] = Accepted(spec=spec, hash=document_hash(spec), document=document)
    return Shelf(accepted=accepted, refused=refused, missing=frozenset(accepted) - frozenset(documents))


def _read_strategy(
    service: str,
    document: RawDocument,
    accepted: Mapping[str, Accepted[Strategy]],
) -> Strategy | Rejected:
    spec = parse_strategy(document.body, key=document.key)
    return spec if isinstance(spec, Rejected) else _conflict(service, spec, accepted) or spec


def _read_canary(
    _service: str,
    document: RawDocument,
    _accepted: Mapping[str, Accepted[CanarySpec]],
) -> CanarySpec | Rejected:
    return parse_canary(document.body, key=document.key)


def _name_problem(service: str, document: RawDocument) -> Rejected | None:
    if SERVICE_NAME.fullmatch(service):
        return None
    reason = f"`{document.key}` does not name a service: letters, digits, `-` and `_` only, 128 at most"
    return Rejected((Problem("", reason, service[:128]),))


def _conflict(
    service: str,
    spec: Strategy,
    accepted: Mapping[str, Accepted[Strategy]],
) -> Rejected | None:
    """Refuse what is well formed but at odds with what is in force."""
    current = accepted.get(service)
    if current is not None and current.spec.version == spec.version and current.hash != document_hash(spec):
        reason = "this version is in force with other content: raise the version"
        return Rejected((Problem("version", reason, spec.version),))
    if spec.retired:
        return None
    taken = {
        domain.lower(): other
        for other, found in accepted.items()
        if other != service and not found.spec.retired
        for domain in domains_of(other, found.spec)
    }
    problems = tuple(
        Problem("routing.domains", f"service `{taken[domain.lower()]}` already has this domain", domain)
        for domain in domains_of(service, spec)
        if domain.lower() in taken
    )
    return Rejected(problems) if problems else None
