"""Documents in Consul KV: watched, read and written with compare-and-set, and their status.

One recursive watch on the whole prefix, and not one for each kind: one answer shows strategies,
canaries and switches at the same moment, so that a transaction over two of them is never seen half
done, and one query is all the load Trimtab puts on Consul for documents. The price is that Trimtab's
own writes below ``status/`` end the query too; content is compared without them, so nothing follows,
and a status is written only when it changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter

from controlplane.errors import DocumentConflict, SourceError
from controlplane.model.documents import Documents, RawDocument
from controlplane.model.health import SourceHealth
from controlplane.sources.blocking import Answer, Change
from controlplane.sources.blocking_watch import BlockingWatch, Retry
from controlplane.sources.consul_client import ConsulClient
from controlplane.sources.fuse import Fuse
from controlplane.sources.layout import (
    STATUS,
    build_documents,
    document_name,
    identity_of,
    names_in,
)


def normalize_prefix(prefix: str) -> str:
    """Write a KV prefix as ``a/b/``: no slash before it and one after it."""
    inner = prefix.strip("/")
    return f"{inner}/" if inner else ""


class ConsulDocuments:
    """Documents under a prefix of Consul KV; a `DocumentSource`.

    After the store started over, `Documents.is_reset` stays set until everything that was lost has
    been written again: as long as something is missing, absence proves nothing.
    """

    def __init__(self, *, client: ConsulClient, prefix: str, fuse: Fuse, retry: Retry) -> None:
        """Watch below `prefix`. `fuse` is this source's own."""
        self._client = client
        self._prefix = normalize_prefix(prefix)
        self._fuse = fuse
        self._retry = retry
        self._log = structlog.get_logger().bind(source=fuse.name)

    async def watch(self) -> AsyncGenerator[Documents, None]:
        """Yield all documents once they are known, then after every change of content."""
        watch = BlockingWatch(read=self._read, outcomes=self._fuse, retry=self._retry)
        known: frozenset[str] = frozenset()
        lost: frozenset[str] = frozenset()
        async with contextlib.aclosing(watch.changes()) as changes:
            async for change in changes:
                present = names_in(change.content)
                lost = self._lost(change, known=known, lost=lost)
                known = present
                yield dataclasses.replace(change.content, is_reset=change.is_reset or bool(lost))

    def health(self) -> SourceHealth:
        """Tell how the source is doing."""
        return self._fuse.health()

    def _lost(
        self, change: Change[Documents], *, known: frozenset[str], lost: frozenset[str]
    ) -> frozenset[str]:
        present = names_in(change.content)
        still_lost = (lost | (known - present if change.is_reset else frozenset())) - present
        if change.is_reset:
            self._log.warning("documents_store_reset", missing=sorted(still_lost))
        return still_lost

    async def _read(self, index: int) -> Answer[Documents]:
        answer = await self._client.list_entries(self._prefix, index=index)
        documents = build_documents(
            (
                entry.key.removeprefix(self._prefix),
                RawDocument(key=entry.key, body=entry.value, revision=entry.modify_index),
            )
            for entry in answer.value
        )
        return Answer(
            index=answer.index,
            content=documents,
            identity=identity_of(documents),
            is_empty=not names_in(documents),
        )


class ConsulDocumentStore:
    """The documents for writing; a `DocumentStore`. Also takes the kind ``control/freeze``, whose
    service ``*`` is the switch for all.
    """

    def __init__(self, *, client: ConsulClient, prefix: str) -> None:
        """Read and write below `prefix`."""
        self._client = client
        self._prefix = normalize_prefix(prefix)

    async def read(self, kind: str, service: str) -> RawDocument | None:
        """Read one document; `None` if absent.

        Raises:
            SourceError: if Consul gives no usable answer.
        """
        entry = await self._client.get_entry(self._key(kind, service))
        if entry is None:
            return None
        return RawDocument(key=entry.key, body=entry.value, revision=entry.modify_index)

    async def write(self, kind: str, service: str, body: bytes, *, expected_revision: int) -> int:
        """Write one document if its revision is still the expected one; gives the new revision.

        Raises:
            DocumentConflict: if somebody else wrote it first.
            SourceError: if Consul gives no usable answer.
        """
        key = self._key(kind, service)
        revision = await self._client.put_if_unchanged(key, body, modify_index=expected_revision)
        if revision is None:
            raise DocumentConflict(key, expected_revision)
        return revision

    async def delete(self, kind: str, service: str, *, expected_revision: int) -> None:
        """Delete one document if its revision is still the expected one.

        Raises:
            DocumentConflict: if somebody else wrote it first.
            SourceError: if Consul gives no usable answer.
        """
        key = self._key(kind, service)
        if not await self._client.delete(key, modify_index=expected_revision):
            raise DocumentConflict(key, expected_revision)

    def _key(self, kind: str, service: str) -> str:
        return self._prefix + document_name(kind, service)


class ConsulStatusSink:
    """The status of each service in Consul KV; a `StatusSink`."""

    def __init__(self, *, client: ConsulClient, prefix: str, registry: CollectorRegistry) -> None:
        """Write below ``<prefix>status/``."""
        self._client = client
        self._prefix = f"{normalize_prefix(prefix)}{STATUS}/"
        self._written: dict[str, bytes] = {}
        self._lock = asyncio.Lock()
        self._failures = Counter(
            "trimtab_status_write_failures",
            "Status documents that could not be written.",
            registry=registry,
        )
        self._log = structlog.get_logger()

    async def write(self, service: str, status: Mapping[str, Any]) -> None:
        """Write one service's status if it differs from what is there.

        What is there is read once: a restart writes nothing when nothing changed.
        """
        key = f"{self._prefix}{service}"
        body = json.dumps(status, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
        async with self._lock:  # one after the other, or an older status could be written last
            if self._written.get(service) == body:
                return
            try:
                entry = await self._client.get_entry(key) if service not in self._written else None
                if entry is None or entry.value != body:
                    await self._client.put(key, body)
            except SourceError as error:
                self._failures.inc()
                self._log.warning("status_write_failed", service=service, error=error.reason)
                return
            self._written[service] = body
