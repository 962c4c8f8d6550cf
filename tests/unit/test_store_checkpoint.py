from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from controlplane.errors import StoreError
from controlplane.store.checkpoint import CheckpointStore
from tests.support.store_faults import FullDisk, file_size_limit, read_only

FILE = "checkpoint.json"


def test_nothing_was_saved_yet(tmp_path: Path) -> None:
    store = CheckpointStore(directory=tmp_path / "new" / "state")

    assert store.load() is None
    assert store.load_problems == ()


def test_the_newest_comes_back_after_a_restart(tmp_path: Path) -> None:
    CheckpointStore(directory=tmp_path).save({"n": 1})
    CheckpointStore(directory=tmp_path).save({"n": 2})

    assert CheckpointStore(directory=tmp_path).load() == {"n": 2}


@pytest.mark.fault("R30")
def test_damaged_at_any_byte_the_previous_one_answers_and_it_is_said_why(tmp_path: Path) -> None:
    store = CheckpointStore(directory=tmp_path)
    store.save({"n": 1})
    store.save({"n": 2})
    content = (tmp_path / FILE).read_bytes()
    with capture_logs() as events:
        for position in range(len(content)):
            for damaged in (
                content[:position],
                content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :],
            ):
                (tmp_path / FILE).write_bytes(damaged)

                assert store.load() == {"n": 1}
                assert store.load_problems == ("`checkpoint.json`: damaged",)
    assert events[0]["event"] == "checkpoint_unusable"


@pytest.mark.fault("R30")
def test_both_damaged_gives_none_and_two_reasons(tmp_path: Path) -> None:
    store = CheckpointStore(directory=tmp_path)
    store.save({"n": 1})
    store.save({"n": 2})
    (tmp_path / FILE).write_bytes(b"")
    (tmp_path / f"{FILE}.previous").unlink()
    (tmp_path / f"{FILE}.previous").mkdir()

    assert store.load() is None
    assert store.load_problems == (
        "`checkpoint.json`: damaged",
        "`checkpoint.json.previous`: Is a directory",
    )


def test_a_crash_between_the_two_renames_leaves_the_previous(tmp_path: Path) -> None:
    store = CheckpointStore(directory=tmp_path)
    store.save({"n": 1})
    (tmp_path / FILE).replace(tmp_path / f"{FILE}.previous")

    assert store.load() == {"n": 1}


@pytest.mark.fault("R29")
def test_a_full_disk_keeps_both_and_says_so_until_it_works(tmp_path: Path) -> None:
    disk = FullDisk()
    disk.is_full = False
    store = CheckpointStore(directory=tmp_path, files=disk)
    store.save({"n": 1})
    disk.is_full = True

    store.save({"n": 2})
    store.save({"n": 3})
    assert store.degraded == "No space left on device"
    assert store.load() == {"n": 1}

    disk.is_full = False
    store.save({"n": 4})
    assert (store.degraded, store.load()) == ("", {"n": 4})


@pytest.mark.fault("R29")
def test_a_write_cut_short_touches_neither_file(tmp_path: Path) -> None:
    store = CheckpointStore(directory=tmp_path)
    store.save({"n": 1})
    store.save({"n": 2})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with file_size_limit(30):
        store.save({"n": 3, "long": "x" * 100})

    assert store.degraded == "File too large"
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.fault("R29")
def test_a_read_only_disk(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    store = CheckpointStore(directory=tmp_path)
    store.save({"n": 1})

    with read_only(tmp_path):
        store.save({"n": 2})
        assert store.degraded == "Permission denied"
        with pytest.raises(StoreError):
            CheckpointStore(directory=tmp_path)

    assert store.load() == {"n": 1}


def test_infinity_is_refused_and_the_last_one_stays(tmp_path: Path) -> None:
    store = CheckpointStore(directory=tmp_path)
    store.save({"n": 1})

    with pytest.raises(ValueError, match="JSON compliant"):
        store.save({"n": float("inf")})

    assert store.load() == {"n": 1}
