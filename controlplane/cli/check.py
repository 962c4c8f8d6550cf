"""`trimtab check`: would `trimtab serve` find everything it needs?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli.exits import ExitCode
from controlplane.cli.options import (
    AddrOption,
    ConfigOption,
    OutputOption,
    TimeoutOption,
    admin_client,
    load_settings,
)
from controlplane.cli.output import Cell, Format, Page, emit
from controlplane.errors import SettingsError

if TYPE_CHECKING:
    from controlplane.cli.client import AdminClient
    from controlplane.cli.preflight.finding import Finding
    from controlplane.config import Settings

_PAUSE_SECONDS = 1.0
_STYLES = {"√": "green", "‼": "yellow", "×": "bold red"}


def check(
    wait: Annotated[
        float, typer.Option("--wait", help="Try again for so many seconds until nothing is `×`.", min=0)
    ] = 0.0,
    output: OutputOption = Format.TABLE,
    timeout: TimeoutOption = 5.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """Test settings, documents, discovery, each metric, ports: √ good, ‼ worth a look, × will not work."""
    try:
        settings = load_settings(config)
        client = admin_client(addr, config, timeout)
    except SettingsError as error:
        from controlplane.cli.preflight.finding import Finding, Mark

        findings = [Finding(Mark.BAD, "settings", str(error))]
        emit(_document(findings), _page(findings), output)
        raise typer.Exit(ExitCode.USAGE) from None
    deadline = time.monotonic() + wait
    findings = asyncio.run(_check(settings, client, timeout))
    while _is_bad(findings) and time.monotonic() < deadline:
        time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
        findings = asyncio.run(_check(settings, client, timeout))
    emit(_document(findings), _page(findings), output)
    if _is_bad(findings):
        raise typer.Exit(ExitCode.TIMEOUT if wait > 0 else ExitCode.FAILED)


async def _check(settings: Settings, client: AdminClient, timeout_seconds: float) -> list[Finding]:
    from controlplane.cli.preflight.finding import Finding, Mark
    from controlplane.cli.preflight.local import check_machine
    from controlplane.cli.preflight.peers import check_peers

    machine = await asyncio.to_thread(check_machine, settings, client)
    peers = await check_peers(settings, timeout_seconds=timeout_seconds)
    return [Finding(Mark.GOOD, "settings", "valid"), *machine, *peers]


def _is_bad(findings: Sequence[Finding]) -> bool:
    return any(finding.mark == "×" for finding in findings)


def _document(findings: Sequence[Finding]) -> dict[str, object]:
    words = {"√": "good", "‼": "warning", "×": "bad"}
    return {
        "schema_version": 1,
        "is_ok": not _is_bad(findings),
        "findings": [
            {"result": words[found.mark], "subject": found.subject, "text": found.text, "hint": found.hint}
            for found in findings
        ],
    }


def _page(findings: Sequence[Finding]) -> Page:
    lines: list[Cell] = []
    for found in findings:
        lines.append(Cell(f"{found.mark} {found.subject}: {found.text}", _STYLES[found.mark]))
        if found.hint and found.mark != "√":
            lines.append(Cell(f"    {found.hint}", "dim"))
    return lines
