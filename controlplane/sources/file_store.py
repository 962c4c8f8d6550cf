"""Documents and status written to a directory: whole files, replaced atomically."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter

from controlplane.errors import DocumentConflict, SourceMalformed, SourceUnreachable
from controlplane.model.documents import MAX_DOCUMENT_BYTES, RawDocument
from controlplane.sources.file_watch import SOURCE, read_capped, revision_of
from controlplane.sources.files import SUFFIXES, body_of, candidates, find_document
from controlplane.sources.layout import STATUS, document_name, is_service_name
from controlplane.sources.yaml_json import dump

LOCK_FILE = ".trimtab.lock"
FILE_MODE = 0o644


class DirectoryDocumentStore:
    """The documents of a directory for writing; a `DocumentStore`.

    A file's revision is a hash of its bytes. Writers lock each other out with ``flock``, which an
    editor does not know of: what it saves in the instant between compare and set is lost.
    """

    def __init__(self, *, root: Path) -> None:
        """Read and write below `root`."""
        self._root = root

    async def read(self, kind: str, service: str) -> RawDocument | None:
        """Read one document, as JSON; `None` if absent.

        Raises:
            SourceUnreachable: if the file cannot be read.
            SourceMalformed: if it is YAML that JSON cannot say.
        """
        return await asyncio.to_thread(self._read, document_name(kind, service))

    async def write(self, kind: str, service: str, body: bytes, *, expected_revision: int) -> int:
        """Write one document if its revision is still the expected one; gives the new revision.

        A file that is YAML stays YAML (without its comments); a new file is JSON.

        Raises:
            DocumentConflict: if somebody else wrote it first.
            SourceUnreachable: if the file cannot be written.
        """
        name = document_name(kind, service)
        return await asyncio.to_thread(self._write, name, body, expected_revision)

    async def delete(self, kind: str, service: str, *, expected_revision: int) -> None:
        """Delete one document if its revision is still the expected one.

        Raises:
            DocumentConflict: if somebody else wrote it first.
            SourceUnreachable: if the file cannot be deleted.
        """
        await asyncio.to_thread(self._delete, document_name(kind, service), expected_revision)

    def _read(self, name: str) -> RawDocument | None:
        path = find_document(self._root, name)
        raw = None if path is None else read_capped(path, MAX_DOCUMENT_BYTES)
        if path is None or raw is None:
            return None
        try:
            return RawDocument(key=str(path), body=body_of(path, raw), revision=revision_of(raw))
        except ValueError as error:
            raise SourceMalformed(SOURCE, f"`{path}`: {error}") from error

    def _write(self, name: str, body: bytes, expected_revision: int) -> int:
        with _writing(self._root):
            path = self._check(name, expected_revision) or candidates(self._root, name)[0]
            raw = _as_yaml(body) if path.suffix in SUFFIXES[1:] else body
            replace_file(path, raw)
        return revision_of(raw)

    def _delete(self, name: str, expected_revision: int) -> None:
        with _writing(self._root):
            path = self._check(name, expected_revision)
            if path is None:
                raise DocumentConflict(name, expected_revision)
            path.unlink()

    def _check(self, name: str, expected_revision: int) -> Path | None:
        path = find_document(self._root, name)
        raw = None if path is None else read_capped(path, MAX_DOCUMENT_BYTES)
        if (0 if raw is None else revision_of(raw)) != expected_revision:
            raise DocumentConflict(str(path or name), expected_revision)
        return path


class DirectoryStatusSink:
    """The status of each service as ``status/<service>.json``; a `StatusSink`."""

    def __init__(self, *, root: Path, registry: CollectorRegistry) -> None:
        """Write below ``<root>/status``, whose changes `DirectoryDocuments` does not look at."""
        self._folder = root / STATUS
        self._written: dict[str, bytes] = {}
        self._lock = asyncio.Lock()
        self._failures = Counter(
            "trimtab_status_write_failures",
            "Status documents that could not be written.",
            registry=registry,
        )
        self._log = structlog.get_logger()

    async def write(self, service: str, status: Mapping[str, Any]) -> None:
        """Write one service's status if it differs from what was written last."""
        body = json.dumps(status, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=2).encode()
        async with self._lock:  # one after the other, or an older status could be written last
            if self._written.get(service) == body:
                return
            if not is_service_name(service):
                self._fail(service, "not a service name")
                return
            try:
                await asyncio.to_thread(self._replace, self._folder / f"{service}.json", body + b"\n")
            except OSError as error:
                self._fail(service, error.strerror or type(error).__name__)
                return
            self._written[service] = body

    def _fail(self, service: str, error: str) -> None:
        self._failures.inc()
        self._log.warning("status_write_failed", service=service[:128], error=error)

    @staticmethod
    def _replace(path: Path, body: bytes) -> None:
        if not path.is_file() or path.read_bytes() != body:
            replace_file(path, body)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old or the new content, also after a power cut.

    Raises:
        OSError: if it cannot be written; the old content stays then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as temporary:
            temporary.write(content)
            temporary.flush()
            os.fchmod(temporary.fileno(), FILE_MODE)
            os.fsync(temporary.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Hold the directory's lock; trouble with files becomes `SourceUnreachable`."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / LOCK_FILE).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise SourceUnreachable(SOURCE, f"cannot write in `{root}`: {error.strerror}") from error


def _as_yaml(body: bytes) -> bytes:
    try:
        return dump(json.loads(body))
    except (ValueError, RecursionError):
        return body  # not JSON: written as it is, and refused by the parser as it would be in JSON
