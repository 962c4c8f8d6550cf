"""`trimtab canary`: rollouts, steered by editing their document."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from controlplane.cli import pages
from controlplane.cli.canary_edit import CanaryFlags, change, document_of, start_canary
from controlplane.cli.documents import parse_canary, read_document
from controlplane.cli.exits import ExitCode, fail
from controlplane.cli.options import (
    AddrOption,
    ConfigOption,
    FileOption,
    IntervalOption,
    OutputOption,
    Reading,
    ServiceArgument,
    TimeoutOption,
    WatchOption,
    admin_client,
    load_settings,
)
from controlplane.cli.output import Format
from controlplane.cli.show import show

app = typer.Typer(no_args_is_help=True, help="Start, watch and steer canaries.")


@app.command("list")
def list_canaries(
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    timeout: TimeoutOption = 5.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """List canaries with phase, weights and verdict."""
    client = admin_client(addr, config, timeout)
    reading = Reading(client=client, form=output, is_watching=watch, interval_seconds=interval)
    show(reading, lambda: client.get("v1", "canaries"), pages.canaries_page)


@app.command()
def get(
    service: ServiceArgument,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
    interval: IntervalOption = 1.0,
    timeout: TimeoutOption = 5.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """Show one canary as a tree: SetWeight, ActualWeight, steps, both subsets."""
    client = admin_client(addr, config, timeout)
    reading = Reading(client=client, form=output, is_watching=watch, interval_seconds=interval)
    show(reading, lambda: client.get("v1", "services", service, "canary"), pages.canary_page)


@app.command()
def start(
    service: ServiceArgument,
    canary: Annotated[
        list[str] | None,
        typer.Option("--canary", help="Attribute that selects the canary, `version=v2`; repeatable."),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline", help="Attribute that selects the baseline; repeatable. Default: the rest."
        ),
    ] = None,
    steps: Annotated[str, typer.Option("--steps", help="Per cent of traffic, step by step.")] = "10,50",
    hold: Annotated[float, typer.Option("--hold", help="Seconds at each step.", min=0)] = 60.0,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="Limit: `signal<=VALUE`, `signal<=RATIOx` (of the baseline), or both joined by a comma; "
            "repeatable. Default: the strategy's SLO.",
        ),
    ] = None,
    file: FileOption = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a document that is still to run.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Write a canary document, from flags or from a file."""
    if (file is None) == (not canary):
        raise typer.BadParameter("give either `--canary` or `--file`", param_hint="--canary")
    if file is not None:
        body = read_document(file)
    else:
        flags = CanaryFlags(
            canary=canary or [],
            baseline=baseline or [],
            steps=steps,
            hold_seconds=hold,
            metrics=metric or [],
        )
        body = document_of(flags)
    parse_canary(body, key=str(file or "flags"))
    revision = asyncio.run(start_canary(load_settings(config), service, body, is_replacing=replace))
    typer.echo(f"{service}: canary written as revision {revision}")


@app.command()
def pause(service: ServiceArgument, config: ConfigOption = None) -> None:
    """Hold the canary at its weight; it is still judged and rolled back if it fails."""
    _desire(service, "paused", config)


@app.command()
def resume(service: ServiceArgument, config: ConfigOption = None) -> None:
    """Go on after `pause`."""
    _desire(service, "run", config)


@app.command()
def promote(service: ServiceArgument, config: ConfigOption = None) -> None:
    """Skip the remaining steps, and pass a gate; an unhealthy canary is still not promoted."""
    _desire(service, "promoted", config)


@app.command()
def abort(service: ServiceArgument, config: ConfigOption = None) -> None:
    """Take all traffic off the canary now."""
    _desire(service, "aborted", config)


@app.command()
def retry(service: ServiceArgument, config: ConfigOption = None) -> None:
    """Run a rolled back document once more."""
    changed = asyncio.run(
        change(load_settings(config), service, lambda found: {"desired": "run", "retry": found.retry + 1})
    )
    if changed is None:
        fail(ExitCode.NOT_FOUND, f"there is no canary document for `{service}`")
    typer.echo(f"{service}: retry written as revision {changed.revision}")


def _desire(service: str, desired: str, config: ConfigOption) -> None:
    changed = asyncio.run(change(load_settings(config), service, lambda _found: {"desired": desired}))
    if changed is None:
        fail(ExitCode.NOT_FOUND, f"there is no canary document for `{service}`")
    if not changed.is_written:
        typer.echo(f"{service}: already `{desired}`, nothing written")
    else:
        typer.echo(f"{service}: `{desired}` written as revision {changed.revision}")
