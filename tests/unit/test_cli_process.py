"""The command line as a process: exit codes, pipes, signals, colour."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import state_views as states
from tests.support.admin_thread import RunningAdmin, running_admin

TRIMTAB = [sys.executable, "-m", "controlplane"]


@pytest.fixture(scope="module")
def admin() -> Iterator[RunningAdmin]:
    with running_admin(states.FixedState(states.view())) as running:
        yield running


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TRIMTAB, *arguments], check=False, capture_output=True, text=True, timeout=30, **more
    )


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from controlplane.cli.main import app\n"
        "heavy = {'aiohttp', 'grpc', 'numpy', 'pydantic', 'prometheus_client', 'rich', 'yaml', 'consul'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_version_and_help_exit_0() -> None:
    assert run("--version").stdout.startswith("trimtab ")
    assert "Usage" in run("--help").stdout


def test_unreachable_is_3_with_a_hint() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = run("status", "--addr", f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert found.returncode == 3
    assert found.stdout == ""
    assert "hint: is `trimtab serve` running there?" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_a_peer_that_does_not_finish_is_a_timeout(answer: bytes) -> None:
    # given a server that sends nothing, or only a part
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            connection, _ = server.accept()
            held.append(connection)
            connection.sendall(answer)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        # when
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        found = run("status", "--addr", address, "--timeout", "0.3")
        thread.join(5)
        for connection in held:
            connection.close()
    # then
    assert found.returncode == 124
    assert "no complete answer within 0.3 s" in found.stderr


def test_a_server_that_is_not_trimtab_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        found = run("status", "--addr", f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join(5)
    assert found.returncode == 1
    assert "not Trimtab's" in found.stderr


def test_a_closed_pipe_is_quiet(admin: RunningAdmin) -> None:
    # given a reader that takes one line of a stream without end, and leaves
    process = subprocess.Popen(
        [*TRIMTAB, "weights", "chat", "-w", "--interval", "0.1", "--addr", admin.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    process.stdout.close()
    # then every line was a document, and the end makes no noise
    assert process.wait(20) == 0
    assert json.loads(line)["service"] == "chat"
    assert process.stderr.read() == ""
    process.stderr.close()


def test_ctrl_c_is_130_and_quiet(admin: RunningAdmin) -> None:
    process = subprocess.Popen(
        [*TRIMTAB, "status", "-w", "--interval", "30", "--addr", admin.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "")


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """Run on a pseudo-terminal of 200 columns and give what it showed."""
    ours, theirs = pty.openpty()
    variables = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"} | environment
    process = subprocess.Popen([*TRIMTAB, *arguments], stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65_536):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(20) == 0
    return shown.decode()


def test_a_terminal_has_colour_unless_no_color_is_set(admin: RunningAdmin) -> None:
    coloured = on_a_terminal("weights", "chat", "--addr", admin.address)
    plain = on_a_terminal("weights", "chat", "--addr", admin.address, NO_COLOR="1")
    assert "\x1b[32m" in coloured
    assert "\x1b[3" not in plain
    assert "75.00%" in plain


def test_watching_waits_for_a_control_plane_that_restarts() -> None:
    # given a watch that has seen one document
    with running_admin(states.FixedState(states.view())) as first:
        port = int(first.address.rpartition(":")[2])
        process = subprocess.Popen(
            [*TRIMTAB, "status", "-w", "--interval", "0.1", "--addr", first.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
    # when the control plane is gone, then it says so once
    waiting = process.stderr.readline()
    # and when it is back, it goes on
    with running_admin(states.FixedState(states.view(store_degraded="new")), port=port):
        while json.loads(process.stdout.readline())["store_degraded"] != "new":
            pass
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert waiting.startswith("waiting: http://127.0.0.1:")
    assert (process.returncode, errors) == (130, "")


def test_serve_check_names_the_wrong_setting() -> None:
    assert run("serve", "--check", "--xds-port", "0", "--set", "consul.datacenter=eu").returncode == 0
    found = run("serve", "--check", "--set", "consul.scheme=gopher")
    assert found.returncode == 2
    assert "setting `consul.scheme`" in found.stderr
