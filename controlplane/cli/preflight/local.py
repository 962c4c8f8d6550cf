"""This machine: ports, the state directory, and a control plane that is already running."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from controlplane.cli.client import AdminClient
from controlplane.cli.preflight.finding import Finding, Mark
from controlplane.config import Settings
from controlplane.errors import AdminError


def check_machine(settings: Settings, client: AdminClient) -> list[Finding]:
    """Look for a running control plane; without one, whether `trimtab serve` could start here."""
    running = _running(client)
    if running is not None:
        return [running]
    ports = [
        ("xds", settings.xds.address, settings.xds.port),
        ("admin", settings.admin.address, settings.admin.port),
    ]
    return [_port(*port) for port in ports] + [_state_directory(settings.store.directory)]


def _running(client: AdminClient) -> Finding | None:
    try:
        ready = client.get("readyz")
    except TimeoutError as error:
        return Finding(Mark.BAD, "control plane", str(error), "its event loop may be blocked: see its log")
    except AdminError as error:
        if error.status is None:
            return None
        hint = "`trimtab status` shows more"
        return Finding(Mark.WARNING, "control plane", f"running, not ready: {error.reason}", hint)
    if "is_ready" not in ready:
        return Finding(Mark.BAD, "control plane", f"something else answers at {client.address}")
    return Finding(Mark.GOOD, "control plane", f"running and ready at {client.address}")


def _port(name: str, address: str, port: int) -> Finding:
    subject = f"{name} port"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((address, port))
        except OSError as error:
            hint = f"`{name}.port` and `{name}.address` choose another"
            return Finding(Mark.BAD, subject, f"{address}:{port}: {error.strerror}", hint)
    return Finding(Mark.GOOD, subject, f"{address}:{port} is free")


def _state_directory(directory: Path) -> Finding:
    """Check that it can be written, or made: without making it."""
    nearest = next((path for path in (directory, *directory.absolute().parents) if path.exists()), None)
    if nearest is not None and nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return Finding(Mark.GOOD, "state directory", f"`{directory}` can be written")
    hint = "`store.directory` chooses another"
    return Finding(Mark.BAD, "state directory", f"`{directory}` cannot be written", hint)
