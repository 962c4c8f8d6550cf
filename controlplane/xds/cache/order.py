"""Which type goes before which: make before break."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, TYPE_ORDER

CHILD_OF = {CLUSTER: ENDPOINT, LISTENER: ROUTE}
"""Type → type of the resources its `references` name."""

BACKENDS = (CLUSTER, ENDPOINT)
"""What routes need in place before they point there."""

ROUTING = (LISTENER, ROUTE)
"""What must have moved away before a backend is removed."""


def in_order(type_urls: Iterable[str]) -> list[str]:
    """Sort types into the order in which a new snapshot reaches a client; unknown types come last."""
    rank = {type_url: place for place, type_url in enumerate(TYPE_ORDER)}
    return sorted(type_urls, key=lambda type_url: (rank.get(type_url, len(rank)), type_url))
