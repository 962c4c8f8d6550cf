"""Canary and freeze commands on a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from controlplane.cli.main import app

runner = CliRunner()

START = ("canary", "start", "chat", "--canary", "version=v2")


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "documents"
    monkeypatch.setenv("TRIMTAB_SOURCES__DIRECTORY", str(folder))
    return folder


def run(*arguments: str) -> Any:
    return runner.invoke(app, arguments)


def stored(documents: Path) -> dict[str, Any]:
    found = json.loads((documents / "canaries/chat.json").read_text())
    assert isinstance(found, dict)
    return found


def test_start_writes_what_the_flags_say(documents: Path) -> None:
    found = run(
        *START,
        "--baseline",
        "version=v1",
        "--steps",
        "10,25,50",
        "--hold",
        "30",
        "--metric",
        "error_ratio<=0.02",
        "--metric",
        "ttft_p90_seconds<=1.5,2x",
    )
    assert found.exit_code == 0, found.output
    document = stored(documents)
    assert document["canary"] == {"version": "v2"}
    assert document["baseline"] == {"version": "v1"}
    assert [step["weight_percent"] for step in document["steps"]] == [10, 25, 50]
    assert {step["hold_seconds"] for step in document["steps"]} == {30}
    assert document["analysis"]["metrics"] == [
        {"signal": "error_ratio", "max_value": 0.02},
        {"signal": "ttft_p90_seconds", "max_value": 1.5, "max_ratio_to_baseline": 2.0},
    ]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--steps", "50,10"), 5),
        (("--steps", "ten"), 2),
        (("--baseline", "version=v2"), 5),
        (("--baseline", "version"), 2),
        (("--metric", "error_ratio"), 2),
        (("--metric", "error_ratio<=1,2"), 2),
        (("--file", "x.json"), 2),
    ],
)
def test_start_refuses_what_cannot_be(documents: Path, more: tuple[str, ...], code: int) -> None:
    assert run(*START, *more).exit_code == code
    assert not documents.exists()


def test_start_from_a_file(documents: Path, tmp_path: Path) -> None:
    path = tmp_path / "canary.yaml"
    path.write_text("schema: 1\ncanary: {version: v2}\n")
    assert run("canary", "start", "chat", "-f", str(path)).exit_code == 0
    assert stored(documents)["canary"] == {"version": "v2"}


def test_a_canary_that_is_still_to_run_is_not_replaced_by_accident(documents: Path) -> None:
    run(*START)
    again = run(*START, "--steps", "20")
    assert again.exit_code == 5
    assert "--replace" in again.stderr
    assert run(*START, "--steps", "20", "--replace").exit_code == 0
    run("canary", "abort", "chat")
    assert run(*START, "--steps", "30").exit_code == 0
    assert [step["weight_percent"] for step in stored(documents)["steps"]] == [30]


@pytest.mark.parametrize(
    ("command", "desired"),
    [("pause", "paused"), ("promote", "promoted"), ("abort", "aborted")],
)
def test_steering_sets_what_is_desired_and_nothing_else(
    documents: Path, command: str, desired: str
) -> None:
    run(*START, "--steps", "5,15")
    before = stored(documents)
    assert run("canary", command, "chat").exit_code == 0
    assert stored(documents) == before | {"desired": desired}
    # the same once more is no change, and says so
    again = run("canary", command, "chat")
    assert again.exit_code == 0
    assert "nothing written" in again.stdout
    # and it can be undone
    assert run("canary", "resume", "chat").exit_code == 0
    assert stored(documents)["desired"] == "run"


def test_retry_counts_up_and_runs_again(documents: Path) -> None:
    run(*START)
    run("canary", "abort", "chat")
    assert run("canary", "retry", "chat").exit_code == 0
    assert (stored(documents)["retry"], stored(documents)["desired"]) == (1, "run")
    run("canary", "retry", "chat")
    assert stored(documents)["retry"] == 2


@pytest.mark.usefixtures("documents")
@pytest.mark.parametrize("command", ["pause", "resume", "promote", "abort", "retry"])
def test_without_a_document_there_is_nothing_to_steer(command: str) -> None:
    found = run("canary", command, "chat")
    assert found.exit_code == 4
    assert "there is no canary document for `chat`" in found.stderr


def test_a_yaml_document_stays_yaml(documents: Path) -> None:
    path = documents / "canaries/chat.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("schema: 1\ncanary:\n  version: v2\n")
    assert run("canary", "pause", "chat").exit_code == 0
    assert yaml.safe_load(path.read_text()) == {
        "schema": 1,
        "canary": {"version": "v2"},
        "desired": "paused",
    }


def test_freeze_and_unfreeze_one_service_and_all(documents: Path) -> None:
    assert run("freeze", "chat").exit_code == 0
    assert run("freeze", "--equal").exit_code == 0
    assert (documents / "control/freeze.d/chat").read_text() == "hold"
    assert (documents / "control/freeze").read_text() == "equal"
    assert "freeze ended" in run("unfreeze").stdout
    assert "not frozen" in run("unfreeze").stdout
    assert "freeze ended" in run("unfreeze", "chat").stdout
    assert not (documents / "control/freeze").exists()
