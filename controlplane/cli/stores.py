"""The document store that the settings name, opened for one command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from controlplane.sources.ports import DocumentStore

if TYPE_CHECKING:
    from controlplane.config import Settings

STRATEGIES = "strategies"
CANARIES = "canaries"
FREEZE = "control/freeze"


class EditableStore(DocumentStore, Protocol):
    """A document store that can also delete: what ends a freeze."""

    async def delete(self, kind: str, service: str, *, expected_revision: int) -> None:
        """Delete one document if its revision is still the expected one.

        Raises:
            DocumentConflict: if somebody else wrote it first.
            SourceError: if the store cannot be reached.
        """
        ...


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[EditableStore]:
    """Open Consul KV or the directory, whichever `sources.documents` says; closed at the end."""
    if settings.sources.documents == "consul":
        from controlplane.sources.consul_client import ConsulClient
        from controlplane.sources.consul_kv import ConsulDocumentStore

        client = ConsulClient(settings=settings.consul)
        try:
            yield ConsulDocumentStore(client=client, prefix=settings.consul.prefix)
        finally:
            await client.close()
    else:
        from controlplane.sources.file_store import DirectoryDocumentStore

        yield DirectoryDocumentStore(root=settings.sources.directory)
