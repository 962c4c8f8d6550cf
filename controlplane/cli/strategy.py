"""`trimtab strategy`: documents that say how one service is balanced."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from controlplane.cli import pages
from controlplane.cli.documents import parse_canary, parse_strategy, pretty, read_document
from controlplane.cli.exits import ExitCode, fail, say
from controlplane.cli.options import (
    AddrOption,
    ConfigOption,
    OutputOption,
    Reading,
    ServiceArgument,
    TimeoutOption,
    admin_client,
    load_settings,
)
from controlplane.cli.output import Format, emit, to_json
from controlplane.cli.show import show

if TYPE_CHECKING:
    from controlplane.cli.push import Pushed, PushOptions
    from controlplane.config import Settings
    from controlplane.model.documents import RawDocument
    from controlplane.model.strategy import Strategy

app = typer.Typer(no_args_is_help=True, help="Write, check and read strategy documents.")

DocumentArgument = Annotated[Path, typer.Argument(help="Document, JSON or YAML; `-` is standard input.")]


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Documents, JSON or YAML; `-` is standard input.")],
    kind: Annotated[
        Literal["strategy", "canary"], typer.Option("--kind", help="What they are.")
    ] = "strategy",
) -> None:
    """Check documents without a control plane; exit code 5 names every problem as `path: reason`."""
    failed = False
    for file in files:
        try:
            body = read_document(file)
            (parse_strategy if kind == "strategy" else parse_canary)(body, key=str(file))
        except typer.Exit as ended:
            if ended.exit_code != ExitCode.INVALID:
                raise
            failed = True
        else:
            typer.echo(f"{file}: ok")
    if failed:
        raise typer.Exit(ExitCode.INVALID)


@app.command()
def push(
    service: ServiceArgument,
    file: DocumentArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; write nothing.")
    ] = False,
    cas: Annotated[
        int | None,
        typer.Option(
            "--cas", help="Write only over this revision; 0: only if absent.", show_default=False, min=0
        ),
    ] = None,
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Accept a version lower than the stored one.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for the control plane's verdict.")
    ] = False,
    output: OutputOption = Format.TABLE,
    timeout: TimeoutOption = 30.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """Put a strategy in force: check it here, write it with compare-and-set, await the verdict."""
    from controlplane.cli.push import PushOptions, await_verdict

    body = read_document(file)
    strategy = parse_strategy(body, key=str(file))
    options = PushOptions(is_dry_run=dry_run, expected_revision=cas, is_downgrade_allowed=allow_downgrade)
    pushed = asyncio.run(_push(load_settings(config), service, pretty(body), strategy, options))
    is_awaited = not (dry_run or no_wait)
    if is_awaited:
        client = admin_client(addr, config, min(timeout, 5.0))
        await_verdict(client, pushed, timeout_seconds=timeout, is_retired=strategy.retired)
    _report(pushed, output, is_active=is_awaited, is_dry_run=dry_run)


@app.command()
def get(
    service: ServiceArgument,
    output: Annotated[Literal["json", "yaml"], typer.Option("--output", "-o", help="Format.")] = "json",
    config: ConfigOption = None,
) -> None:
    """Print the stored document; its revision goes to standard error."""
    from controlplane.cli.stores import STRATEGIES

    found = asyncio.run(_read(load_settings(config), STRATEGIES, service))
    if found is None:
        fail(ExitCode.NOT_FOUND, f"there is no strategy for `{service}`")
    say(f"{found.key}: revision {found.revision}")
    print_document(found.body, output)


@app.command("list")
def list_strategies(
    output: OutputOption = Format.TABLE,
    timeout: TimeoutOption = 5.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """List services with the strategy in force, and what was refused."""
    client = admin_client(addr, config, timeout)
    reading = Reading(client=client, form=output)
    show(reading, lambda: client.get("v1", "services"), pages.services_page)


@app.command()
def history(
    service: ServiceArgument,
    bodies: Annotated[bool, typer.Option("--bodies", help="With the documents, in JSON and YAML.")] = False,
    output: OutputOption = Format.TABLE,
    timeout: TimeoutOption = 5.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """List the documents that have been in force, oldest first."""
    client = admin_client(addr, config, timeout)
    query = "?bodies=1" if bodies else ""
    reading = Reading(client=client, form=output)
    show(reading, lambda: client.get("v1", "services", service, "history", query=query), pages.history_page)


@app.command()
def schema(
    kind: Annotated[
        Literal["strategy", "canary"], typer.Option("--kind", help="Of which document.")
    ] = "strategy",
) -> None:
    """Print the JSON Schema of a document, for editors."""
    from controlplane.core.parse import json_schema

    sys.stdout.write(to_json(json_schema(kind), is_pretty=True))


def print_document(body: bytes, form: Literal["json", "yaml"]) -> None:
    """Write a stored document to standard output."""
    text = pretty(body)
    if form == "yaml":
        from controlplane.sources import yaml_json

        text = yaml_json.dump(yaml_json.load_json(body))
    sys.stdout.write(text.decode("utf-8", "replace"))


async def _push(
    settings: Settings, service: str, body: bytes, strategy: Strategy, options: PushOptions
) -> Pushed:
    from controlplane.cli.push import push_strategy
    from controlplane.cli.stores import open_store

    async with open_store(settings) as store:
        return await push_strategy(store, service, body, strategy, options)


async def _read(settings: Settings, kind: str, service: str) -> RawDocument | None:
    from controlplane.cli.stores import open_store

    async with open_store(settings) as store:
        return await store.read(kind, service)


def _report(pushed: Pushed, form: Format, *, is_active: bool, is_dry_run: bool) -> None:
    document: dict[str, Any] = {
        "schema_version": 1,
        "service": pushed.service,
        "version": pushed.version,
        "hash": pushed.hash,
        "revision": pushed.revision,
        "is_written": pushed.is_written,
        "is_active": is_active,
    }
    did = "would be written" if is_dry_run and pushed.difference else "unchanged"
    if pushed.is_written:
        did = f"written as revision {pushed.revision}"
    line = f"{pushed.service}: version {pushed.version}, hash {pushed.hash[:12]}, {did}"
    page = [f"{line}, in force" if is_active else line]
    if is_dry_run and pushed.difference:
        page.insert(0, pushed.difference)
    emit(document, page, form)
