"""Every exception Trimtab raises on purpose.

::

    TrimtabError
    ├── SettingsError            a setting is missing, unknown or out of range
    ├── SourceError              a peer we read from did not give a usable answer
    │   ├── SourceUnreachable    no answer: refused, timed out, connection lost
    │   └── SourceMalformed      an answer that is not in the peer's own format
    ├── DocumentConflict         compare-and-set lost: somebody else wrote the key first
    ├── BuildError               a plan cannot become xDS resources
    │   ├── InvalidPlan          one service asks for what Envoy would refuse or misread
    │   └── OversizedResource    one resource is above the size limit
    ├── StoreError               the state directory cannot be read or written
    └── AdminError               the admin API of a running Trimtab gave no usable answer

Bad *documents* are not exceptions: they are values (`controlplane.model.problems.Problem`).
Facts are attributes, so that an edge can turn them into a status code without parsing text.
"""

from __future__ import annotations


class TrimtabError(Exception):
    """Base of every error raised on purpose."""


class SettingsError(TrimtabError):
    """A setting is missing, unknown or out of range."""

    def __init__(self, key: str, reason: str) -> None:
        """Name the setting's dotted `key` and say what is wrong with it."""
        super().__init__(f"setting `{key}`: {reason}")
        self.key = key
        self.reason = reason


class SourceError(TrimtabError):
    """A peer that Trimtab reads from did not give a usable answer."""

    def __init__(self, source: str, reason: str) -> None:
        """Name the `source` (``consul``, ``prometheus``…) and say what went wrong, without secrets."""
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class SourceUnreachable(SourceError):
    """No answer at all: refused, timed out, or the connection was lost."""


class SourceMalformed(SourceError):
    """An answer came, but not in the peer's own format."""


class DocumentConflict(TrimtabError):
    """Compare-and-set lost: the document changed since it was read."""

    def __init__(self, key: str, expected_revision: int) -> None:
        """Name the `key` and the revision the writer had expected."""
        super().__init__(f"`{key}` changed since revision {expected_revision} was read")
        self.key = key
        self.expected_revision = expected_revision


class BuildError(TrimtabError):
    """A plan cannot become xDS resources."""


class InvalidPlan(BuildError):
    """One service asks for something that Envoy would refuse, or take to mean something else.

    Without that service the rest of the plan may well be buildable.
    """

    def __init__(self, service: str, reason: str) -> None:
        """Name the `service` at fault (empty: the plan as a whole) and say what is wrong."""
        super().__init__(f"`{service}`: {reason}" if service else reason)
        self.service = service
        self.reason = reason


class OversizedResource(BuildError):
    """One encoded resource is above the size limit."""

    def __init__(self, name: str, size_bytes: int, limit_bytes: int) -> None:
        """Name the resource with its size and the limit, both in bytes."""
        super().__init__(f"resource `{name}` has {size_bytes} bytes, the limit is {limit_bytes}")
        self.name = name
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class StoreError(TrimtabError):
    """The state directory cannot be read or written."""


class AdminError(TrimtabError):
    """The admin API of a running Trimtab gave no usable answer."""

    def __init__(self, address: str, reason: str, *, status: int | None = None) -> None:
        """Name the `address`, the `reason`, and the HTTP `status` if there was an answer."""
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
        self.status = status
