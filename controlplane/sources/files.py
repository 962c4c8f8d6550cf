"""Documents in a directory, watched.

Files are ``strategies/<service>.json`` (or ``.yaml``, ``.yml``), ``canaries/…``, ``control/freeze`` and
``control/freeze.d/<service>``. Hidden files and other endings are not looked at, so that editors and
a ConfigMap's ``..data`` link may do as they like. YAML becomes JSON; what cannot is delivered as it
is, for the parser to refuse where people see it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from controlplane.errors import SourceUnreachable
from controlplane.model.documents import MAX_DOCUMENT_BYTES, Documents, RawDocument
from controlplane.model.health import SourceHealth
from controlplane.sources.file_watch import (
    SOURCE,
    Loaded,
    WatchedPath,
    read_capped,
    revision_of,
    watch_loaded,
)
from controlplane.sources.fuse import Fuse
from controlplane.sources.layout import (
    CANARIES,
    FREEZE,
    STATUS,
    STRATEGIES,
    build_documents,
    identity_of,
)
from controlplane.sources.yaml_json import to_json

SUFFIXES = (".json", ".yaml", ".yml")
"""Endings of documents; of several files for one service the earlier in this order counts."""

FREEZE_FOLDER = f"{FREEZE}.d"


class DirectoryDocuments:
    """Documents in a directory; a `DocumentSource`.

    A directory that is missing or cannot be read is trouble and no deletion: the last good documents
    stay. A folder that held documents and is gone as a whole (a volume that was unmounted) sets
    `Documents.is_reset` until it is back; files deleted from a folder that stays are deletions.
    """

    def __init__(self, *, root: Path, fuse: Fuse) -> None:
        """Watch below `root`. `fuse` is this source's own."""
        self._root = root
        self._fuse = fuse
        self._converted: dict[Path, tuple[bytes, RawDocument, str]] = {}
        self._folders: frozenset[str] = frozenset()

    async def watch(self) -> AsyncGenerator[Documents, None]:
        """Yield all documents once they are known, then after every change of content."""
        path = WatchedPath(folder=self._root, is_recursive=True, ignored=self._root.resolve() / STATUS)
        async with contextlib.aclosing(watch_loaded(self._load, path=path, fuse=self._fuse)) as changes:
            async for documents in changes:
                yield documents

    def health(self) -> SourceHealth:
        """Tell how the source is doing."""
        return self._fuse.health()

    def _load(self) -> Loaded[Documents]:
        if not self._root.is_dir():
            raise SourceUnreachable(SOURCE, f"there is no directory `{self._root}`")
        entries: dict[str, RawDocument] = {}
        notes: list[str] = []
        converted: dict[Path, tuple[bytes, RawDocument, str]] = {}
        for name, path in _document_files(self._root):
            raw = read_capped(path, MAX_DOCUMENT_BYTES)
            if raw is None:
                continue
            known = self._converted.get(path)
            read = known if known is not None and known[0] == raw else (raw, *_convert(path, raw))
            converted[path] = read
            notes += [read[2]] if read[2] else []
            if name in entries:
                notes.append(f"`{path}` is not used: there is another file for {name}")
                continue
            entries[name] = read[1]
        self._converted = converted
        present = frozenset(kind for kind in (STRATEGIES, CANARIES) if (self._root / kind).is_dir())
        self._folders |= present
        documents = dataclasses.replace(
            build_documents(entries.items()), is_reset=bool(self._folders - present)
        )
        return Loaded(
            content=documents, identity=(identity_of(documents), tuple(notes)), notes=tuple(notes)
        )


def find_document(root: Path, name: str) -> Path | None:
    """Find the file of a document by its name below the root; `None` if there is none."""
    return next((path for path in candidates(root, name) if path.is_file()), None)


def candidates(root: Path, name: str) -> tuple[Path, ...]:
    """List the files that a document may be in, best first."""
    if name == FREEZE:
        return (root / FREEZE,)
    if name.startswith(f"{FREEZE}/"):
        return (root / FREEZE_FOLDER / name.removeprefix(f"{FREEZE}/"),)
    return tuple(root / f"{name}{suffix}" for suffix in SUFFIXES)


def body_of(path: Path, raw: bytes) -> bytes:
    """Give a file's document as JSON.

    Raises:
        ValueError: if the file is YAML that JSON cannot say.
    """
    return to_json(raw) if path.suffix in SUFFIXES[1:] and len(raw) <= MAX_DOCUMENT_BYTES else raw


def _convert(path: Path, raw: bytes) -> tuple[RawDocument, str]:
    note = ""
    try:
        body = body_of(path, raw)
    except ValueError as error:
        body, note = raw, f"`{path}`: {error}"
    return RawDocument(key=str(path), body=body, revision=revision_of(raw)), note


def _document_files(root: Path) -> Iterator[tuple[str, Path]]:
    """List documents with their names below the root, in an order that does not depend on the disk."""
    for kind in (STRATEGIES, CANARIES):
        files = [path for path in _visible(root / kind) if path.suffix in SUFFIXES]
        for path in sorted(files, key=lambda path: (path.stem, SUFFIXES.index(path.suffix))):
            yield f"{kind}/{path.stem}", path
    yield FREEZE, root / FREEZE
    for path in sorted(_visible(root / FREEZE_FOLDER)):
        yield f"{FREEZE}/{path.name}", path


def _visible(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith((".", "#"))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SourceUnreachable(SOURCE, f"cannot list `{folder}`: {error.strerror}") from error
