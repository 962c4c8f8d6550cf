from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controlplane.errors import StoreError
from controlplane.store.files import FileSystem
from controlplane.store.framing import encode
from controlplane.store.instruments import StoreMetrics
from controlplane.store.log import DecisionLog, LogLimits
from tests.support.store_faults import FullDisk, TornDisk, file_size_limit, read_only


def open_log(folder: Path, *, files: FileSystem | None = None, **limits: int) -> DecisionLog:
    return DecisionLog(directory=folder, limits=LogLimits(**limits), files=files)


def numbers(log: DecisionLog) -> list[int]:
    return [record["n"] for record in log.read()]


def batch(*wanted: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in wanted]


def aside(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.damaged")))


@pytest.mark.fault("R29")
def test_a_full_disk_keeps_the_newest_records_in_memory_and_writes_them_later(tmp_path: Path) -> None:
    # given a full disk
    disk = FullDisk()
    registry = CollectorRegistry()
    log = DecisionLog(
        directory=tmp_path,
        limits=LogLimits(ring_records=3),
        files=disk,
        metrics=StoreMetrics(registry=registry),
    )

    # when five records come
    for n in range(5):
        log.append(batch(n))

    # then the newest three wait, and it shows
    assert log.degraded == "No space left on device"
    assert (log.waiting_records, log.lost_records) == (3, 2)
    assert registry.get_sample_value("trimtab_store_waiting_records", {"log": "decisions"}) == 3
    assert registry.get_sample_value("trimtab_store_lost_records_total", {"log": "decisions"}) == 2

    # when there is room again
    disk.is_full = False
    log.append(batch(5))

    # then all that is left is on disk, in order
    assert numbers(log) == [2, 3, 4, 5]
    assert (log.degraded, log.waiting_records) == ("", 0)
    assert registry.get_sample_value("trimtab_store_waiting_records", {"log": "decisions"}) == 0


@pytest.mark.fault("R29")
def test_a_write_cut_short_by_the_kernel_leaves_nothing_behind(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(1))
    before = log.path.read_bytes()

    with file_size_limit(len(before) + 20):
        log.append(batch(2, 3, 4))
        assert log.path.read_bytes() == before
        assert log.degraded == "File too large"

    log.append([])
    assert numbers(log) == [1, 2, 3, 4]
    assert log.degraded == ""


@pytest.mark.fault("R29")
def test_a_read_only_disk_is_survived_also_by_rotation(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    log = open_log(tmp_path, max_bytes=40)
    log.append(batch(1))

    with read_only(tmp_path):
        log.append(batch(2))
        log.append(batch(3))
        assert log.degraded == "Permission denied"

    log.append(batch(4))
    assert numbers(log) == [1, 2, 3, 4]


@pytest.mark.fault("R29")
@pytest.mark.parametrize("tear_after_bytes", [0, 1, 17, 25, 26, 27, 40, 78])
def test_a_torn_tail_that_could_not_be_taken_back_is_cut_before_the_next_write(
    tmp_path: Path, tear_after_bytes: int
) -> None:
    open_log(tmp_path).append(batch(1))
    log = open_log(tmp_path, files=TornDisk(tear_after_bytes=tear_after_bytes))

    log.append(batch(2, 3, 4))
    log.append(batch(5))

    assert numbers(log) == [1, 2, 3, 4, 5]
    assert list(tmp_path.glob("*.damaged")) == []


@pytest.mark.fault("R29")
def test_a_damaged_log_on_a_full_disk_is_repaired_when_there_is_room(tmp_path: Path) -> None:
    (tmp_path / "decisions.log").write_bytes(encode({"n": 1}) + b"torn")
    disk = FullDisk()

    log = open_log(tmp_path, files=disk)
    log.append(batch(2))
    assert log.degraded == "No space left on device"
    assert (tmp_path / "decisions.log").read_bytes() == encode({"n": 1}) + b"torn"

    disk.is_full = False
    log.append(batch(3))
    assert numbers(log) == [1, 2, 3]
    assert aside(tmp_path) == b"torn"


def test_what_another_hand_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(1))
    with log.path.open("ab") as file:
        file.write(encode({"n": 2}) + b"half a rec")

    log.append(batch(3))

    assert numbers(log) == [1, 2, 3]
    assert aside(tmp_path) == b"half a rec"


def test_a_log_deleted_under_our_feet_starts_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(1))
    log.path.unlink()

    log.append(batch(2))

    assert numbers(log) == [2]


@pytest.mark.fault("R29")
def test_an_unusable_directory_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="Not a directory"):
        open_log(tmp_path / "file" / "state")

    tmp_path.chmod(0o755)
    with read_only(tmp_path), pytest.raises(StoreError, match="Permission denied"):
        open_log(tmp_path)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(StoreError, match="File exists"):
        open_log(tmp_path / "state")
