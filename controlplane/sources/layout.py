"""How documents are laid out, alike in Consul KV and in a directory.

=============================  ==========================================
``strategies/<service>``       a strategy (a file ends in ``.json``, ``.yaml`` or ``.yml``)
``canaries/<service>``         a canary
``control/freeze``             the kill switch for all services: ``hold`` or ``equal``
``control/freeze/<service>``   the kill switch for one service
``status/<service>``           what Trimtab made of them
=============================  ==========================================

In a directory a file and a folder cannot share a name: one service's switch is
``control/freeze.d/<service>`` there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import structlog

from controlplane.model.documents import Documents, RawDocument

STRATEGIES = "strategies"
CANARIES = "canaries"
FREEZE = "control/freeze"
STATUS = "status"
ALL_SERVICES = "*"

STORE_KINDS = frozenset({STRATEGIES, CANARIES, FREEZE})

_SERVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")


def is_service_name(name: str) -> bool:
    """Tell whether `name` can be part of a key, a path and a file name as it is."""
    return _SERVICE.fullmatch(name) is not None


def document_name(kind: str, service: str) -> str:
    """Give a document's name below the root.

    Raises:
        ValueError: if there is no such kind, or the service's name could leave its folder.
    """
    if kind not in STORE_KINDS:
        raise ValueError(f"no kind of document is called `{kind}`")
    if kind == FREEZE and service == ALL_SERVICES:
        return FREEZE
    if not is_service_name(service):
        raise ValueError(f"`{service}` is not a service name")
    return f"{kind}/{service}"


def freeze_mode(body: bytes, *, key: str) -> str:
    """Read a kill switch: ``equal`` or, for anything else, ``hold``.

    Whoever sets a switch wants things to stop; a misspelt value must not leave them running.
    """
    text = body[:64].decode("utf-8", "replace").strip().strip('"').lower()
    if text not in {"hold", "equal"}:
        structlog.get_logger().warning("freeze_value_unknown", key=key, taken_as="hold")
    return "equal" if text == "equal" else "hold"


def build_documents(entries: Iterable[tuple[str, RawDocument]], *, is_reset: bool = False) -> Documents:
    """Sort entries, each with its name below the root (``strategies/chat``), into `Documents`.

    Names that belong to something else are passed over. A strange service name is kept: the parser
    refuses it where people see it.
    """
    found: dict[str, dict[str, RawDocument]] = {STRATEGIES: {}, CANARIES: {}}
    freezes: dict[str, str] = {}
    for name, document in sorted(entries, key=lambda entry: entry[0]):
        kind, _, service = name.partition("/")
        if name == FREEZE:
            freezes[ALL_SERVICES] = freeze_mode(document.body, key=document.key)
        elif name.startswith(f"{FREEZE}/") and name != f"{FREEZE}/":
            freezes[name.removeprefix(f"{FREEZE}/")] = freeze_mode(document.body, key=document.key)
        elif kind in found and service and not service.endswith("/"):
            found[kind][service] = document
    return Documents(
        strategies=MappingProxyType(found[STRATEGIES]),
        canaries=MappingProxyType(found[CANARIES]),
        freezes=MappingProxyType(freezes),
        is_reset=is_reset,
    )


def identity_of(documents: Documents) -> tuple[object, ...]:
    """Give what counts as content of documents: everything but revisions and the reset mark.

    A key written again with the same bytes is no change.
    """
    return (
        _bodies(documents.strategies),
        _bodies(documents.canaries),
        tuple(sorted(documents.freezes.items())),
    )


def names_in(documents: Documents) -> frozenset[str]:
    """List the documents that are there, as names below the root."""
    return frozenset(
        [f"{STRATEGIES}/{service}" for service in documents.strategies]
        + [f"{CANARIES}/{service}" for service in documents.canaries]
        + [f"{FREEZE}/{service}" for service in documents.freezes]
    )


def _bodies(documents: Mapping[str, RawDocument]) -> tuple[tuple[str, bytes], ...]:
    return tuple((service, document.body) for service, document in sorted(documents.items()))
