"""What one client wants of one type: names, a wildcard, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.model.resources import CLUSTER, LISTENER

WILDCARD = "*"

FULL_SET_TYPES = frozenset({CLUSTER, LISTENER})
"""Types that know a wildcard, and whose SotW responses replace everything the client has."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one request changed. `asked` must be answered, even with what the client already has."""

    asked: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    is_everything_asked: bool = False
    """The wildcard was asked for."""
    is_wildcard_dropped: bool = False


class Subscription:
    """The names and the wildcard one client holds of one type.

    Only requests change it: sending, or a resource that vanishes, never does (xDS protocol, "how the
    client specifies what resources to return"). A name may be one that does not exist yet.
    """

    __slots__ = ("_has_named", "_knows_wildcard", "is_wildcard", "names")

    def __init__(self, *, type_url: str) -> None:
        self._knows_wildcard = type_url in FULL_SET_TYPES
        self._has_named = False
        self.is_wildcard = False
        self.names: set[str] = set()

    def wants(self, name: str) -> bool:
        """Tell whether the client is interested in a resource."""
        return self.is_wildcard or name in self.names

    def replace(self, requested: Sequence[str]) -> Change:
        """Take the complete list of names that a SotW request carries.

        An empty list means everything until a first name was given on the stream (legacy wildcard,
        listeners and clusters only), and nothing after that. Empty names are no names: one known
        client writes ``[""]`` for "none".
        """
        names = {name for name in requested if name}
        self._has_named = self._has_named or bool(requested)
        is_wildcard = self._knows_wildcard and (WILDCARD in names or not self._has_named)
        names.discard(WILDCARD)
        change = Change(
            asked=frozenset(names - self.names),
            dropped=frozenset(self.names - names),
            is_everything_asked=is_wildcard and not self.is_wildcard,
            is_wildcard_dropped=self.is_wildcard and not is_wildcard,
        )
        self.names, self.is_wildcard = names, is_wildcard
        return change

    def update(self, *, subscribe: Iterable[str], unsubscribe: Iterable[str], is_first: bool) -> Change:
        """Take what a delta request adds and removes; adding wins over removing the same name.

        Every added name is asked for, also when it was there before. A name removed under a wildcard
        is asked for too: the client keeps its interest through the wildcard and wants to hear the
        state of that name.
        """
        added = {name for name in subscribe if name}
        removed = {name for name in unsubscribe if name}
        is_legacy_wildcard = is_first and not added and self._knows_wildcard
        is_everything_asked = is_legacy_wildcard or (self._knows_wildcard and WILDCARD in added)
        is_wildcard_dropped = self.is_wildcard and WILDCARD in removed and not is_everything_asked
        added.discard(WILDCARD)
        removed.discard(WILDCARD)
        self.is_wildcard = is_everything_asked or (self.is_wildcard and not is_wildcard_dropped)
        self.names = (self.names - removed) | added
        return Change(
            asked=frozenset(added | removed if self.is_wildcard else added),
            dropped=frozenset(removed - added),
            is_everything_asked=is_everything_asked,
            is_wildcard_dropped=is_wildcard_dropped,
        )
