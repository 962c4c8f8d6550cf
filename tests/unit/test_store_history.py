from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from controlplane.model.documents import AcceptedDocument
from controlplane.store.history import History
from controlplane.store.log import DecisionLog, LogLimits


def open_log(folder: Path) -> DecisionLog:
    return DecisionLog(directory=folder, limits=LogLimits(), name="history")


def document(version: str, *, service: str = "chat") -> AcceptedDocument:
    return AcceptedDocument(
        service=service,
        version=version,
        hash=f"hash-of-{version}",
        accepted_at_unix_seconds=1_700_000_000.25,
        body='{"schema": 1}\n',
    )


def test_documents_come_back_by_service_oldest_first(tmp_path: Path) -> None:
    history = History(log=open_log(tmp_path))
    for found in (document("1.0.0"), document("9.0.0", service="other"), document("1.1.0")):
        history.append(found)

    for again in (history, History(log=open_log(tmp_path))):
        assert again.of("chat") == (document("1.0.0"), document("1.1.0"))
        assert again.of("other") == (document("9.0.0", service="other"),)
        assert again.of("unknown") == ()


def test_a_restart_that_accepts_the_same_document_again_adds_nothing(tmp_path: Path) -> None:
    History(log=open_log(tmp_path)).append(document("1.0.0"))
    history = History(log=open_log(tmp_path))

    history.append(document("1.0.0"))

    assert history.of("chat") == (document("1.0.0"),)
    assert len(list(open_log(tmp_path).read())) == 1


def test_going_back_to_an_older_document_is_a_line_of_its_own(tmp_path: Path) -> None:
    history = History(log=open_log(tmp_path))
    for version in ("1", "2", "1"):
        history.append(document(version))

    assert [found.version for found in history.of("chat")] == ["1", "2", "1"]


def test_memory_is_bounded_by_service(tmp_path: Path) -> None:
    history = History(log=open_log(tmp_path), max_per_service=2)
    for version in ("1", "2", "3"):
        history.append(document(version))

    assert [found.version for found in history.of("chat")] == ["2", "3"]


@pytest.mark.fault("R30")
def test_damage_and_strange_records_cost_only_themselves(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    History(log=log).append(document("1"))
    log.append([{"from": "the future"}])
    log.path.write_bytes(log.path.read_bytes() + b"torn")

    with capture_logs() as events:
        history = History(log=open_log(tmp_path))

    assert history.of("chat") == (document("1"),)
    assert [event["event"] for event in events] == ["log_repaired", "history_unreadable"]
