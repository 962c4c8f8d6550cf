"""`trimtab serve`: run the control plane."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from controlplane.cli.exits import say
from controlplane.cli.options import ConfigOption, load_settings


def serve(
    config: ConfigOption = None,
    check: Annotated[bool, typer.Option("--check", help="Check the settings and exit.")] = False,
    documents: Annotated[
        Literal["directory", "consul"] | None,
        typer.Option("--documents", help="Where strategies and canaries come from.", show_default=False),
    ] = None,
    topology: Annotated[
        Literal["file", "consul"] | None,
        typer.Option("--topology", help="Where endpoints come from.", show_default=False),
    ] = None,
    signals: Annotated[
        Literal["scrape", "prometheus"] | None,
        typer.Option("--signals", help="Where metrics come from.", show_default=False),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Document directory.", show_default=False)
    ] = None,
    endpoints: Annotated[
        Path | None, typer.Option("--endpoints", help="Endpoint file, YAML or JSON.", show_default=False)
    ] = None,
    consul: Annotated[
        str | None, typer.Option("--consul", help="Consul agent, `host:port`.", show_default=False)
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", help="Prometheus URL.", show_default=False)
    ] = None,
    xds_address: Annotated[
        str | None, typer.Option("--xds-address", help="Address for Envoy.", show_default=False)
    ] = None,
    xds_port: Annotated[
        int | None,
        typer.Option(
            "--xds-port", help="Port for Envoy; 0: a free one.", show_default=False, min=0, max=65_535
        ),
    ] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            "--admin-port",
            help="Port of the admin API; 0: a free one.",
            show_default=False,
            min=0,
            max=65_535,
        ),
    ] = None,
    listener_port: Annotated[
        int | None,
        typer.Option(
            "--listener-port",
            help="Port that Envoy opens for requests.",
            show_default=False,
            min=1,
            max=65_535,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Directory of decision log and checkpoint.", show_default=False),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option("--interval", help="Seconds between two decisions.", show_default=False),
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option("--log-level", help="Least level that is logged.", show_default=False),
    ] = None,
    log_format: Annotated[
        Literal["auto", "json", "console"] | None,
        typer.Option("--log-format", help="How logs are written.", show_default=False),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, `consul.datacenter=eu`; repeatable."),
    ] = None,
) -> None:
    """Run the control plane. Settings: flags over TRIMTAB_* variables over `--config` over defaults."""
    given: dict[str, Any] = {
        "sources.documents": documents,
        "sources.topology": topology,
        "sources.signals": signals,
        "sources.directory": directory,
        "sources.endpoints_file": endpoints,
        "consul.address": consul,
        "prometheus.url": prometheus,
        "xds.address": xds_address,
        "xds.port": xds_port,
        "admin.port": admin_port,
        "listener.port": listener_port,
        "store.directory": state,
        "loop.interval_seconds": interval,
        "log.level": log_level,
        "log.format": log_format,
    }
    flags = {key: value for key, value in given.items() if value is not None} | _assigned(assignments or [])
    settings = load_settings(config, flags)
    if check:
        say("settings are valid")
        return
    from controlplane import app

    raise typer.Exit(asyncio.run(app.serve(settings)))


def _assigned(assignments: list[str]) -> dict[str, str]:
    found = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or "." not in key:
            raise typer.BadParameter(f"`{text}` is not `table.name=value`", param_hint="--set")
        found[key] = value
    return found
