"""Strategy commands on a directory, with a real admin server for the verdict."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from controlplane.cli.main import app
from controlplane.cli.semver import is_downgrade
from controlplane.core.parse import document_hash, parse_strategy
from controlplane.model.strategy import Strategy
from controlplane.sources.file_watch import revision_of
from tests.support import state_views as states
from tests.support.admin_thread import running_admin

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A document directory that the settings name."""
    monkeypatch.setenv("TRIMTAB_SOURCES__DIRECTORY", str(tmp_path / "documents"))
    monkeypatch.setenv("TRIMTAB_ADMIN__PORT", "1")  # nothing listens there
    return tmp_path


def document(folder: Path, version: str = "1.0.0", **fields: Any) -> str:
    path = folder / f"chat-{version}.json"
    path.write_text(json.dumps({"schema": 1, "version": version} | fields))
    return str(path)


def run(*arguments: str, text: str | None = None) -> Any:
    return runner.invoke(app, arguments, input=text)


def push(*arguments: str) -> Any:
    return run("strategy", "push", "chat", *arguments, "--no-wait")


def stored(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "documents/strategies/chat.json").read_text())
    assert isinstance(found, dict)
    return found


def test_validate_names_every_problem_as_path_and_reason(folder: Path) -> None:
    good = document(folder)
    bad = document(folder, "2.0.0", law="magic", guards={"floor_ratio": 3, "unknown": 1})
    found = run("strategy", "validate", good, bad)
    assert found.exit_code == 5
    assert f"{good}: ok" in found.stdout
    assert "guards.floor_ratio: " in found.stderr
    assert "guards.unknown: " in found.stderr


def test_validate_reads_standard_input_and_yaml(folder: Path) -> None:
    assert run("strategy", "validate", "-", text='{"schema": 1, "version": "1.0.0"}').exit_code == 0
    path = folder / "chat.yaml"
    path.write_text("schema: 1\nversion: 1.0.0\n")
    assert run("strategy", "validate", str(path)).exit_code == 0
    path.write_text("schema: 1\nversion: &a [*a]\n")
    assert run("strategy", "validate", str(path)).exit_code == 5
    assert run("strategy", "validate", str(folder / "absent.json")).exit_code == 4


def test_a_document_that_is_too_large_is_refused_unread(folder: Path) -> None:
    path = folder / "large.json"
    path.write_text('"' + "x" * (256 * 1024) + '"')
    found = run("strategy", "validate", str(path))
    assert found.exit_code == 5
    assert "is larger than" in found.stderr


def test_push_writes_and_get_reads_back(folder: Path) -> None:
    assert push(document(folder, description="first")).exit_code == 0
    assert stored(folder)["description"] == "first"
    found = run("strategy", "get", "chat")
    assert json.loads(found.stdout)["version"] == "1.0.0"
    assert "revision" in found.stderr
    assert yaml.safe_load(run("strategy", "get", "chat", "-o", "yaml").stdout)["version"] == "1.0.0"
    assert run("strategy", "get", "other").exit_code == 4


def test_pushing_the_same_again_writes_nothing(folder: Path) -> None:
    path = document(folder)
    push(path)
    found = push(path, "-o", "json")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["is_written"] is False


def test_a_dry_run_shows_the_difference_and_writes_nothing(folder: Path) -> None:
    push(document(folder))
    found = push(document(folder, "1.1.0", law="equal"), "--dry-run")
    assert found.exit_code == 0
    assert '+  "law": "equal"' in found.stdout
    assert "would be written" in found.stdout
    assert stored(folder)["version"] == "1.0.0"


def test_one_version_has_one_content(folder: Path) -> None:
    push(document(folder))
    found = push(document(folder, law="equal"))
    assert found.exit_code == 5
    assert "version 1.0.0 of `chat` is stored with other content" in found.stderr


def test_a_lower_version_must_be_wanted(folder: Path) -> None:
    push(document(folder, "1.10.0"))
    lower = document(folder, "1.9.0")
    assert push(lower).exit_code == 5
    assert push(lower, "--allow-downgrade").exit_code == 0
    assert stored(folder)["version"] == "1.9.0"


def test_compare_and_set_loses_to_who_was_first(folder: Path) -> None:
    push(document(folder))
    found = push(document(folder, "1.1.0"), "--cas", "12345")
    assert found.exit_code == 5
    assert "changed since revision 12345" in found.stderr
    assert push(document(folder, "1.1.0"), "--cas", "0").exit_code == 5
    assert stored(folder)["version"] == "1.0.0"


def test_an_invalid_document_is_never_written(folder: Path) -> None:
    assert push(document(folder, law="magic")).exit_code == 5
    assert not (folder / "documents").exists()


def in_force(strategy: Strategy, **changes: Any) -> states.FixedState:
    service = states.service(strategy=strategy, strategy_hash=document_hash(strategy), **changes)
    return states.FixedState(states.view(services=(service,)))


def test_push_waits_until_the_control_plane_runs_it(folder: Path) -> None:
    path = Path(document(folder))
    strategy = parse_strategy(path.read_bytes(), key="x")
    assert isinstance(strategy, Strategy)
    with running_admin(in_force(strategy)) as admin:
        found = run("strategy", "push", "chat", str(path), "--addr", admin.address)
    assert found.exit_code == 0, found.output
    assert "in force" in found.stdout


def test_push_reports_why_the_control_plane_refused_it(folder: Path) -> None:
    # given a control plane that refuses exactly the revision that will be written
    path = Path(document(folder))
    body = json.dumps(json.loads(path.read_bytes()), indent=2).encode() + b"\n"
    refused = dataclasses.replace(states.rejected(), revision=revision_of(body))
    with running_admin(in_force(states.strategy("0.9.0"), rejected=refused)) as admin:
        found = run("strategy", "push", "chat", str(path), "--addr", admin.address, "--timeout", "5")
    assert found.exit_code == 5
    assert "guards.floor_ratio: too large (got 3)" in found.stderr


def test_push_gives_up_waiting_in_time_and_says_that_it_is_written(folder: Path) -> None:
    # given a control plane that goes on with the old strategy
    with running_admin(in_force(states.strategy("0.9.0"), rejected=None)) as admin:
        found = run(
            "strategy", "push", "chat", document(folder), "--addr", admin.address, "--timeout", "0.3"
        )
    assert found.exit_code == 124
    assert "is written, but not in force after 0.3 s" in found.stderr


def test_push_waits_until_a_retired_service_is_gone(folder: Path) -> None:
    with running_admin(states.FixedState(states.view(services=()))) as admin:
        found = run("strategy", "push", "chat", document(folder, retired=True), "--addr", admin.address)
    assert found.exit_code == 0, found.output


def test_push_without_a_control_plane_is_3_and_written(folder: Path) -> None:
    found = run("strategy", "push", "chat", document(folder))
    assert found.exit_code == 3
    assert "the document is written" in found.stderr
    assert stored(folder)["version"] == "1.0.0"


@pytest.mark.parametrize("kind", ["strategy", "canary"])
def test_schema_is_a_json_schema(kind: str) -> None:
    found = json.loads(run("strategy", "schema", "--kind", kind).stdout)
    assert found["additionalProperties"] is False


ORDERED = (
    *("1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"),
    *("1.0.0-rc.1", "1.0.0", "1.2.0", "1.10.0", "2.0.0"),
)
"""The example of semver.org, section 11, and numbers that text would sort otherwise."""


@given(st.integers(0, len(ORDERED) - 1), st.integers(0, len(ORDERED) - 1))
def test_versions_are_ordered_as_semver_says(left: int, right: int) -> None:
    assert is_downgrade(ORDERED[left], ORDERED[right]) == (right < left)
    assert not is_downgrade(f"{ORDERED[left]}+a", f"{ORDERED[left]}+b")
