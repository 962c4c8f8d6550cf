"""The command line against a control plane that it started itself, with simulated model servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TRIMTAB = [sys.executable, "-m", "controlplane"]


@dataclass(frozen=True, slots=True)
class House:
    """A control plane, its settings and its model servers."""

    folder: Path
    serving: subprocess.Popen[str]
    servers: tuple[int, ...]

    @property
    def config(self) -> Path:
        return self.folder / "trimtab.toml"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"TRIMTAB_CONFIG": str(self.config)}
        return subprocess.run(
            [*TRIMTAB, *arguments], check=False, capture_output=True, text=True, timeout=40, env=environment
        )

    def read(self, *arguments: str) -> Any:
        found = self.run(*arguments, "-o", "json")
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    def push(self, version: str, **fields: Any) -> subprocess.CompletedProcess[str]:
        path = self.folder / "next.json"
        path.write_text(json.dumps({"schema": 1, "version": version} | fields))
        return self.run("strategy", "push", "chat", str(path), "--timeout", "15")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    xds, admin, *servers = free_ports(4)
    (tmp_path / "trimtab.toml").write_text(
        f'[sources]\ndirectory = "{tmp_path}/documents"\nendpoints_file = "{tmp_path}/endpoints.yaml"\n'
        f"[xds]\nport = {xds}\n[admin]\nport = {admin}\n[loop]\ninterval_seconds = 0.5\n"
        f'[store]\ndirectory = "{tmp_path}/state"\n'
    )
    endpoints = "".join(
        f"    - {{address: 127.0.0.1, port: {port}, version: v{number}}}\n"
        for number, port in enumerate(servers, start=1)
    )
    (tmp_path / "endpoints.yaml").write_text(f"services:\n  chat:\n{endpoints}")
    (tmp_path / "documents").mkdir()
    listed = ",".join(map(str, servers))
    log = tmp_path / "serve.log"
    with (
        log.open("w") as output,
        running([*TRIMTAB, "sim-server", "--ports", listed, "--server-version", "v1,v2"], output),
        running([*TRIMTAB, "serve", "--config", str(tmp_path / "trimtab.toml")], output) as serving,
    ):
        for port in (*servers, admin):
            wait_for_port(port, log)
        yield House(tmp_path, serving, tuple(servers))


@contextmanager
def running(command: list[str], output: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=output, stderr=output, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


def wait_for_port(port: int, log: Path) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"nothing listens on {port}:\n{log.read_text()[-2000:]}")


def test_a_strategy_goes_from_a_file_to_weights_and_out_again(house: House) -> None:
    # given a control plane without a strategy
    assert house.run("weights", "chat").returncode == 4
    assert house.read("status")["is_ready"] is False

    # when one is pushed, then the command returns once it is in force
    pushed = house.push("1.0.0")
    assert pushed.returncode == 0, pushed.stderr
    assert "in force" in pushed.stdout
    rows = wait_for_weights(house)
    assert [row["endpoint"] for row in rows] == sorted(f"127.0.0.1:{port}" for port in house.servers)
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    explained = house.read("explain", "chat", rows[0]["endpoint"])
    assert explained["weight"] == rows[0]["weight"]
    assert {"running", "waiting"} <= {signal["signal"] for signal in explained["signals"]}
    assert house.read("status")["is_ready"] is True

    # when content changes under one version, then it is refused before it is written
    assert house.push("1.0.0", law="equal").returncode == 5
    # when a version is good here and refused there, then the reasons come back, and the old one stays
    (house.folder / "documents/strategies/other.json").write_text(
        json.dumps({"schema": 1, "version": "1.0.0", "routing": {"domains": ["taken"]}})
    )
    wait_until(lambda: house.run("weights", "other").returncode == 0)
    refused = house.push("1.1.0", routing={"domains": ["taken"]})
    assert refused.returncode == 5
    assert "already has this domain" in refused.stderr
    assert house.read("strategy", "history", "chat")["documents"][-1]["version"] == "1.0.0"

    # when the service is frozen, then it says so; and no longer after that
    assert house.run("freeze", "chat").returncode == 0
    wait_until(lambda: house.read("weights", "chat")["freeze"] == "hold")
    assert house.run("unfreeze", "chat").returncode == 0
    wait_until(lambda: house.read("weights", "chat")["freeze"] == "")

    # when a canary starts, then it is seen, and aborted at a word
    started = house.run("canary", "start", "chat", "--canary", "version=v2", "--steps", "10")
    assert started.returncode == 0, started.stderr
    wait_until(lambda: house.run("canary", "get", "chat").returncode == 0)
    assert house.run("canary", "abort", "chat").returncode == 0
    wait_until(lambda: house.read("canary", "get", "chat")["set_weight_percent"] == 0.0)

    # when a service is retired, then the command returns once it is gone
    assert house.push("2.0.0", retired=True).returncode == 0
    assert house.run("weights", "chat").returncode == 4


def test_check_tells_what_works_and_what_does_not(house: House) -> None:
    # given a good strategy
    assert house.push("1.0.0").returncode == 0
    wait_for_weights(house)
    found = house.run("check")
    assert "√ control plane: running and ready" in found.stdout
    assert "√ endpoints of chat: 2 endpoints" in found.stdout
    assert "√ signals of chat: running: 2 of 2 endpoints" in found.stdout
    assert "×" not in found.stdout
    assert found.returncode == 0
    # when a document cannot be used, then it is named with its problem
    (house.folder / "documents/strategies/chat.json").write_text('{"schema": 1, "version": "x"}')
    found = house.run("check", "--wait", "0.5", "-o", "json")
    assert found.returncode == 124
    bad = [each["text"] for each in json.loads(found.stdout)["findings"] if each["result"] == "bad"]
    assert any("version: is not a semantic version" in text for text in bad)


@pytest.mark.fault("R28")
def test_sigterm_ends_it_in_order_with_0(house: House) -> None:
    house.serving.send_signal(signal.SIGTERM)
    assert house.serving.wait(12) == 0


def test_check_without_a_control_plane_looks_at_ports_and_sources(house: House) -> None:
    house.serving.terminate()
    house.serving.wait(12)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = subprocess.run(
            [*TRIMTAB, "check", "-c", str(house.config)],
            check=False,
            capture_output=True,
            text=True,
            timeout=40,
            env=os.environ | {"TRIMTAB_XDS__PORT": str(port)},
        )
    assert found.returncode == 1
    assert f"× xds port: 127.0.0.1:{port}: Address already in use" in found.stdout
    assert "√ admin port" in found.stdout
    assert "√ state directory" in found.stdout
    assert "× documents (directory): no usable strategy" in found.stdout


def wait_for_weights(house: House) -> Any:
    wait_until(lambda: house.read("weights", "chat")["endpoints"][0]["weight"] is not None)
    return house.read("weights", "chat")["endpoints"]


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
