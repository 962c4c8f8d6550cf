from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.store.files import Disk, FileSystem
from controlplane.store.framing import Damage, decode, encode, read
from controlplane.store.log import DecisionLog, LogLimits
from controlplane.store.ring import Ring

SMALL: list[dict[str, Any]] = [{"n": 0, "text": "a\nb"}, {"n": 1, "ü": None}, {"n": 2, "list": [1.5, 0.1]}]


def open_log(folder: Path, *, files: FileSystem | None = None, **limits: int) -> DecisionLog:
    return DecisionLog(directory=folder, limits=LogLimits(**limits), files=files)


def numbers(log: DecisionLog) -> list[int]:
    return [record["n"] for record in log.read()]


def batch(*wanted: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in wanted]


def test_records_come_back_in_order_across_restarts(tmp_path: Path) -> None:
    open_log(tmp_path).append(SMALL[:2])
    open_log(tmp_path).append(SMALL[2:])

    assert list(open_log(tmp_path).read()) == SMALL


def test_a_batch_with_nan_writes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    with pytest.raises(ValueError, match="JSON compliant"):
        log.append([{"n": 1}, {"n": float("nan")}])

    assert list(log.read()) == []
    assert log.degraded == ""


def test_a_reader_that_comes_along_sees_whole_records_only(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(SMALL)
    log.path.write_bytes(log.path.read_bytes()[:-1])

    assert list(read(log.path)) == SMALL[:2]


def test_rotation_keeps_the_newest_files_and_the_order(tmp_path: Path) -> None:
    frame = len(encode({"n": 10}))
    log = open_log(tmp_path, max_bytes=2 * frame, max_files=2)

    for n in range(10, 19):
        log.append(batch(n))

    assert numbers(log) == [14, 15, 16, 17, 18]
    assert [path.name for path in log.paths()] == ["decisions.log.2", "decisions.log.1", "decisions.log"]
    assert all(path.stat().st_size <= 2 * frame for path in log.paths())


def test_a_batch_larger_than_a_file_is_still_written_in_one_piece(tmp_path: Path) -> None:
    log = open_log(tmp_path, max_bytes=64, ring_records=2)

    log.append(batch(*range(20)))

    assert numbers(log) == list(range(20))
    assert log.lost_records == 0


# --- R30: damage ---------------------------------------------------------------------------------


def torn(folder: Path, content: bytes) -> DecisionLog:
    folder.mkdir()
    (folder / "decisions.log").write_bytes(content)
    return open_log(folder)


def aside(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.damaged")))


@pytest.mark.fault("R30")
def test_torn_at_any_byte_the_valid_prefix_is_recovered_exactly(tmp_path: Path) -> None:
    content = b"".join(encode(record) for record in SMALL)
    ends = [sum(len(encode(record)) for record in SMALL[:n]) for n in range(len(SMALL) + 1)]
    for cut in range(len(content) + 1):
        # given a log that a crash tore at this byte
        folder = tmp_path / str(cut)
        whole = max(n for n, end in enumerate(ends) if end <= cut)

        # when it is opened
        log = torn(folder, content[:cut])

        # then whole records stay, the rest is aside and reported, and the log goes on
        assert log.path.read_bytes() == content[: ends[whole]]
        assert aside(folder) == content[ends[whole] : cut]
        assert sum(damage.size_bytes for damage in log.damages) == cut - ends[whole]
        log.append(batch(99))
        assert list(log.read()) == [*SMALL[:whole], {"n": 99}]


@pytest.mark.fault("R30")
def test_a_flip_of_any_bit_never_passes_for_a_record(tmp_path: Path) -> None:
    content = b"".join(encode(record) for record in SMALL)
    path = tmp_path / "flipped.log"
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(flipped)
        damages: list[Damage] = []

        found = list(read(path, on_damage=damages.append))

        assert damages
        assert all(record in SMALL for record in found)
        assert len(found) in {1, 2}  # a line feed flipped away takes two records along
        assert len(path.read_bytes()) == sum(len(encode(r)) for r in found) + sum(
            damage.size_bytes for damage in damages
        )


@pytest.mark.fault("R30")
def test_a_flip_in_the_middle_of_any_byte_keeps_the_prefix_and_nothing_is_thrown_away(
    tmp_path: Path,
) -> None:
    content = b"".join(encode(record) for record in SMALL)
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 0x10
        folder = tmp_path / str(position)

        log = torn(folder, bytes(flipped))

        kept = log.path.read_bytes()
        assert content.startswith(kept)
        assert kept + aside(folder) == bytes(flipped)
        assert list(log.read()) == SMALL[: len(list(log.read()))]


@pytest.mark.fault("R30")
@settings(max_examples=60, deadline=None)
@given(garbage=st.binary(max_size=200))
def test_garbage_is_no_record(garbage: bytes) -> None:
    assert decode(garbage) is None


def test_a_checksum_over_something_else_is_no_record() -> None:
    body = b"[1]"
    framed = encode({"n": 1})

    assert decode(framed.replace(b'{"n":1}', body)) is None
    assert decode(b"00000003 " + b"%08x" % zlib.crc32(body) + b" [1]\n") is None


@pytest.mark.fault("R30")
def test_pieces_put_aside_are_bounded_and_the_newest_stay(tmp_path: Path) -> None:
    for n in range(20):
        with (tmp_path / "decisions.log").open("ab") as file:
            file.write(b"torn %d" % n)
        open_log(tmp_path)

    pieces = {path.name: path.read_bytes() for path in tmp_path.glob("*.damaged")}
    assert len(pieces) == 16
    assert pieces["decisions.log.20.damaged"] == b"torn 19"


def test_the_ring_is_bounded_by_size_too() -> None:
    ring = Ring(max_records=100, max_bytes=10)

    ring.keep([b"aaaa", b"bbbb", b"cccc"])
    assert ring.frames == (b"bbbb", b"cccc")

    ring.keep([b"d" * 11])
    assert (len(ring), ring.lost_records) == (0, 4)


def test_the_order_of_keys_survives() -> None:
    found = decode(encode({"b": 1, "a": {"d": 2, "c": 3}}))

    assert found is not None
    assert (list(found), list(found["a"])) == (["b", "a"], ["d", "c"])


def test_the_disk_does_not_leave_drafts(tmp_path: Path) -> None:
    Disk().replace(tmp_path / "x", b"1")

    assert [path.name for path in tmp_path.iterdir()] == ["x"]
