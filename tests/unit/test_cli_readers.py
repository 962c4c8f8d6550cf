"""Reading commands against a real admin server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from controlplane.cli.main import app
from tests.support import state_views as states
from tests.support.admin_thread import RunningAdmin, running_admin

runner = CliRunner()


@pytest.fixture(scope="module")
def admin() -> Iterator[RunningAdmin]:
    with running_admin(states.FixedState(states.view(), past=states.history())) as running:
        yield running


def run(admin: RunningAdmin, *arguments: str) -> Any:
    return runner.invoke(app, [*arguments, "--addr", admin.address])


READERS = [
    ("status",),
    ("status", "edge/2"),
    ("weights",),
    ("weights", "chat"),
    ("weights", "embed"),
    ("explain", "chat"),
    ("explain", "chat", states.SLOW),
    ("strategy", "list"),
    ("strategy", "history", "chat"),
    ("canary", "list"),
    ("canary", "get", "chat"),
]


@pytest.mark.parametrize("arguments", READERS)
@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
def test_every_reader_writes_every_format(
    admin: RunningAdmin, arguments: tuple[str, ...], form: str
) -> None:
    found = run(admin, *arguments, "-o", form)
    assert found.exit_code == 0, found.output
    if form == "json":
        assert json.loads(found.stdout)["schema_version"] == 1
    elif form == "yaml":
        assert yaml.safe_load(found.stdout)["schema_version"] == 1
    else:
        assert found.stdout.strip()
    assert found.stderr == ""


def test_a_table_off_a_terminal_is_never_cut() -> None:
    # given a reason longer than any terminal
    reason = "because " * 60
    view = states.view(is_ready=False, not_ready_reason=reason.strip())
    with running_admin(states.FixedState(view)) as other:
        found = run(other, "status")
    assert reason.strip() in found.stdout
    assert "\x1b" not in found.stdout


def test_columns_line_up_and_empty_cells_are_dashes(admin: RunningAdmin) -> None:
    lines = run(admin, "weights", "embed").stdout.splitlines()
    header = next(line for line in lines if line.startswith("ENDPOINT"))
    row = lines[lines.index(header) + 1].split()
    assert row[:5] == ["10.0.0.1:8000", "a", "-", "-", "-"]


def test_text_from_elsewhere_cannot_steer_the_terminal(admin: RunningAdmin) -> None:
    # given a NACK message with an escape sequence in it
    found = run(admin, "status")
    assert "bad \N{REPLACEMENT CHARACTER}[31mweight" in found.stdout
    assert "\x1b" not in found.stdout


def test_unknown_is_null_and_zero_is_there(admin: RunningAdmin) -> None:
    document = json.loads(run(admin, "weights", "embed", "-o", "json").stdout)
    assert document["endpoints"][0]["weight"] is None
    document = json.loads(run(admin, "status", "-o", "json").stdout)
    assert document["sources"][1]["consecutive_failures"] == 0


def test_a_canary_is_a_tree_with_both_weights(admin: RunningAdmin) -> None:
    found = run(admin, "canary", "get", "chat").stdout
    assert "SetWeight 10%, ActualWeight 10%" in found
    assert "▸ 10% for 1m00s" in found
    assert "then a gate" in found
    assert "canary (version=v2): 1 of 1 endpoints healthy" in found


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("weights", "nope"), 4, "no service `nope` is known"),
        (("status", "nope"), 4, "no node `nope` is connected"),
        (("canary", "get", "embed"), 4, "service `embed` has no canary"),
        (("weights", "bad name"), 2, "letters, digits"),
        (("weights", "-o", "csv"), 2, "csv"),
        (("nope",), 2, "nope"),
    ],
)
def test_exit_codes(admin: RunningAdmin, arguments: tuple[str, ...], code: int, words: str) -> None:
    found = run(admin, *arguments)
    assert found.exit_code == code
    assert words in found.output
    assert "Traceback" not in found.output


def test_an_address_that_is_none_is_unreachable() -> None:
    found = runner.invoke(app, ["status", "--addr", "ftp://x"])
    assert found.exit_code == 3
    assert "not an address such as" in found.stderr


def test_the_address_comes_from_the_settings(admin: RunningAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_ADMIN__PORT", admin.address.rpartition(":")[2])
    assert runner.invoke(app, ["status"]).exit_code == 0


def test_a_wrong_setting_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_ADMIN__PORT", "many")
    found = runner.invoke(app, ["status"])
    assert found.exit_code == 2
    assert "admin.port" in found.stderr
