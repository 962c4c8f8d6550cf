"""The ports through which the rest of Trimtab sees the world. Each is one or two verbs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from controlplane.model.documents import Documents, RawDocument, TopologyOffer
from controlplane.model.health import SourceHealth
from controlplane.model.signals import Readings, SignalRequest


class DocumentSource(Protocol):
    """Strategies, canaries and switches."""

    def watch(self) -> AsyncIterator[Documents]:
        """Yield everything once it is known, then again after every change of content.

        Never yields a partial set and never ends by itself. Trouble with the peer is retried inside,
        with backoff, and shows in `health`.
        """
        ...

    def health(self) -> SourceHealth:
        """Tell how the source is doing."""
        ...


class TopologySource(Protocol):
    """Endpoints."""

    def watch(self, services: frozenset[str]) -> AsyncIterator[TopologyOffer]:
        """Yield the endpoints of these services once *all* are known, then after every change.

        A service that discovery knows nothing of is in the offer with no endpoints.
        """
        ...

    def health(self) -> SourceHealth:
        """Tell how the source is doing."""
        ...


class SignalSource(Protocol):
    """Metrics."""

    async def read(self, request: SignalRequest) -> Readings:
        """Read every signal of one service, within the source's own deadline.

        Raises:
            SourceError: if nothing usable was read at all. Part of the endpoints missing is not an
                error: they are absent from the readings.
        """
        ...


class DocumentStore(Protocol):
    """The writable side of the documents, for the command line."""

    async def read(self, kind: str, service: str) -> RawDocument | None:
        """Read one document (`kind` is ``strategies`` or ``canaries``); `None` if absent."""
        ...

    async def write(self, kind: str, service: str, body: bytes, *, expected_revision: int) -> int:
        """Write one document if its revision is still the expected one (0: it must not exist).

        Returns the new revision.

        Raises:
            DocumentConflict: if somebody else wrote it first.
            SourceError: if the store cannot be reached.
        """
        ...


class StatusSink(Protocol):
    """Where Trimtab reports what it made of a service's documents."""

    async def write(self, service: str, status: Mapping[str, Any]) -> None:
        """Write the status of one service (JSON types). Failure is logged and counted, never raised."""
        ...
