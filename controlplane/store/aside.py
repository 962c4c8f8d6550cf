"""Where damaged parts of a file go."""

from __future__ import annotations

from pathlib import Path

from controlplane.store.files import FileSystem

MAX_KEPT = 16
"""A machine that tears its log again and again must not fill its disk with the pieces."""


def put_aside(path: Path, *, offset: int, files: FileSystem) -> Path:
    """Copy what a file holds from `offset` on into ``<file>.<number>.damaged`` beside it.

    The newest `MAX_KEPT` pieces stay.

    Raises:
        OSError: if there is no room, or the file cannot be read.
    """
    pieces = sorted(path.parent.glob(f"{path.name}.*.damaged"), key=_number)
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read()
    number = _number(pieces[-1]) + 1 if pieces else 1
    aside = path.with_name(f"{path.name}.{number}.damaged")
    files.replace(aside, content)
    for old in pieces[: max(0, len(pieces) + 1 - MAX_KEPT)]:
        old.unlink(missing_ok=True)
    return aside


def _number(path: Path) -> int:
    digits = path.name.removesuffix(".damaged").rpartition(".")[2]
    return int(digits) if digits.isdecimal() else 0
