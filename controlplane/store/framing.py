r"""One record, one line: length, checksum, JSON. A damaged line cannot pass for a record.

``<length of the JSON in bytes, 8 hex digits> <its CRC-32, 8 hex digits> <JSON>\n``

JSON escapes line feeds, so a line feed always ends a record: after damage, a reader finds the next
record without trusting any length, and people can read the file with ordinary tools.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HEAD_BYTES = len("00000000 00000000 ")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a file that hold no record. `is_tail`: the file ends in them, as after a crash."""

    path: Path
    offset: int
    size_bytes: int
    is_tail: bool


def encode(record: Mapping[str, Any]) -> bytes:
    """Frame one record.

    The order of keys stays, because a decision repeated from a record must add up in the same order.

    Raises:
        ValueError: if the record holds NaN or infinity, which are not JSON.
        TypeError: if it holds anything else that is not JSON.
    """
    body = json.dumps(record, allow_nan=False, separators=(",", ":")).encode("ascii")
    return b"%08x %08x %s\n" % (len(body), zlib.crc32(body), body)


def decode(line: bytes) -> dict[str, Any] | None:
    """Read one framed line, line feed included; `None` if any byte of it is not as it was written."""
    body = _proven(line)
    if body is None:
        return None
    try:
        record = json.loads(body)
    except ValueError:  # a good checksum over something `encode` did not write
        return None
    return record if isinstance(record, dict) else None


def read(path: Path, *, on_damage: Callable[[Damage], None] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the good records of one file, in order; tell `on_damage` of each stretch between them.

    Good records behind a stretch of damage are yielded too: each one carries its own proof.

    Raises:
        OSError: if the file cannot be read.
    """
    offset = damaged_from = 0
    with path.open("rb") as file:
        for line in file:
            record = decode(line)
            if record is not None:
                if on_damage and damaged_from < offset:
                    on_damage(Damage(path, damaged_from, offset - damaged_from, is_tail=False))
                yield record
                damaged_from = offset + len(line)
            offset += len(line)
    if on_damage and damaged_from < offset:
        on_damage(Damage(path, damaged_from, offset - damaged_from, is_tail=True))


def valid_prefix_bytes(path: Path) -> int:
    """Count the bytes of the good records that a file begins with.

    Raises:
        OSError: if the file cannot be read.
    """
    end = 0
    with path.open("rb") as file:
        for line in file:
            if _proven(line) is None:
                break
            end += len(line)
    return end


def _proven(line: bytes) -> bytes | None:
    """Give a line's JSON if length and checksum hold."""
    body = line[_HEAD_BYTES:-1]
    if line[-1:] != b"\n" or line[:_HEAD_BYTES] != b"%08x %08x " % (len(body), zlib.crc32(body)):
        return None
    return body
