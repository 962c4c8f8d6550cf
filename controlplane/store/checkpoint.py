"""The last good state, replaced as a whole, with the one before it as a fallback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from controlplane.store.files import Disk, FileSystem, prepare_folder, reason_of
from controlplane.store.framing import decode, encode

_FILE_NAME = "checkpoint.json"


class CheckpointStore:
    """Keeps ``checkpoint.json`` and ``checkpoint.json.previous`` in the state directory.

    Both are one framed record (`controlplane.store.framing`), so that a torn or rotten file cannot
    pass for a state.
    """

    def __init__(self, *, directory: Path, files: FileSystem | None = None) -> None:
        """Use this directory, making it if needed.

        Raises:
            StoreError: if it is not usable.
        """
        self.degraded = ""
        """Why the last save failed; empty if it did not."""
        self.load_problems: tuple[str, ...] = ()
        """What the last `load` could not use, and why."""
        self._path = directory / _FILE_NAME
        self._previous = directory / f"{_FILE_NAME}.previous"
        self._files = files or Disk()
        self._log = structlog.get_logger("trimtab.store")
        prepare_folder(directory)

    def save(self, content: Mapping[str, Any]) -> None:
        """Replace the checkpoint. A disk that refuses leaves the last one, and sets `degraded`.

        Raises:
            ValueError: if `content` holds NaN or infinity.
            TypeError: if it holds anything else that is not JSON.
        """
        framed = encode(content)
        try:
            self._files.replace(self._path, framed, keep=self._previous)
        except OSError as error:
            reason = reason_of(error)
            if not self.degraded:
                self._log.error("checkpoint_failed", path=self._path.name, reason=reason)
            self.degraded = reason
        else:
            self.degraded = ""

    def load(self) -> dict[str, Any] | None:
        """Read the newest good checkpoint; `None` if there is none, with why in `load_problems`."""
        problems: list[str] = []
        found = None
        for path in (self._path, self._previous):
            found = self._read(path, problems)
            if found is not None:
                break
        self.load_problems = tuple(problems)
        for problem in problems:
            self._log.error("checkpoint_unusable", problem=problem)
        return found

    def _read(self, path: Path, problems: list[str]) -> dict[str, Any] | None:
        try:
            content = decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            problems.append(f"`{path.name}`: {reason_of(error)}")
            return None
        if content is None:
            problems.append(f"`{path.name}`: damaged")
        return content
