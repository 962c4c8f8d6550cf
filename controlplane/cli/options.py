"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.client import AdminClient
from controlplane.cli.output import Format
from controlplane.model.topology import SERVICE_NAME

if TYPE_CHECKING:
    from controlplane.config import Settings

CONFIG_VARIABLE = "TRIMTAB_CONFIG"


def _service(name: str | None) -> str | None:
    if name is not None and not SERVICE_NAME.fullmatch(name):
        raise typer.BadParameter("letters, digits, `-` and `_` only, 128 at most")
    return name


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar=CONFIG_VARIABLE, help="Settings file, TOML.", show_default=False),
]
AddrOption = Annotated[
    str | None,
    typer.Option(
        "--addr",
        help="Admin API of the running control plane. Default: from the settings.",
        show_default=False,
    ),
]
OutputOption = Annotated[Format, typer.Option("--output", "-o", help="How to write the answer.")]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Go on showing; one JSON document a line off a terminal.")
]
IntervalOption = Annotated[
    float, typer.Option("--interval", help="Seconds between two looks with `--watch`.", min=0.1, max=3600)
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for an answer.", min=0.05, max=86_400)
]
ServiceArgument = Annotated[str, typer.Argument(help="Name of the service.", callback=_service)]
OptionalService = Annotated[
    str | None,
    typer.Argument(help="Name of the service. All, if left out.", callback=_service, show_default=False),
]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Document, JSON or YAML; `-` is standard input.", show_default=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a reading command reads and shows."""

    client: AdminClient
    form: Format
    is_watching: bool = False
    interval_seconds: float = 2.0


def load_settings(config: Path | None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Load the settings as `trimtab serve` would, from the same file, environment and flags.

    Raises:
        SettingsError: if one is wrong.
    """
    from controlplane.config import ENV_PREFIX, Settings, load

    given = {name: value for name, value in os.environ.items() if name.startswith(ENV_PREFIX)}
    if config is None and not flags and not any("__" in name for name in given):
        return Settings()  # nothing to validate, and no need to import pydantic for it
    return load(file=config, environment=given, flags=flags)


def admin_address(addr: str | None, config: Path | None) -> str:
    """Tell where the admin API is: where `--addr` says, else where the settings put it."""
    if addr:
        return addr
    admin = load_settings(config).admin
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(admin.address, admin.address)  # noqa: S104 - compared
    return f"http://[{host}]:{admin.port}" if ":" in host else f"http://{host}:{admin.port}"


def admin_client(addr: str | None, config: Path | None, timeout_seconds: float) -> AdminClient:
    """Make the client for the admin API."""
    return AdminClient(address=admin_address(addr, config), timeout_seconds=timeout_seconds)
