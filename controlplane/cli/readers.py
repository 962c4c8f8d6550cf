"""Commands that only read: `status`, `weights`, `explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.cli import pages
from controlplane.cli.client import AdminClient
from controlplane.cli.options import (
    AddrOption,
    ConfigOption,
    IntervalOption,
    OptionalService,
    OutputOption,
    Reading,
    ServiceArgument,
    TimeoutOption,
    WatchOption,
    admin_client,
)
from controlplane.cli.output import Format, Page
from controlplane.cli.show import show


def status(
    node: Annotated[str | None, typer.Argument(help="Show this node only.", show_default=False)] = None,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    timeout: TimeoutOption = 5.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the fleet: readiness, sources, services, and what each Envoy has."""
    client = admin_client(addr, config, timeout)
    reading = Reading(client=client, form=output, is_watching=watch, interval_seconds=interval)
    if node is None:
        show(reading, lambda: client.get("v1", "status"), pages.status_page)
    else:
        show(reading, lambda: client.get("v1", "nodes", node), pages.node_page)


def weights(
    service: OptionalService = None,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    timeout: TimeoutOption = 5.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """Show each endpoint's weight, where it is heading, and why."""
    client = admin_client(addr, config, timeout)
    reading = Reading(client=client, form=output, is_watching=watch, interval_seconds=interval)
    if service is None:
        show(reading, lambda: _all_weights(client), _all_weights_page)
    else:
        show(reading, lambda: client.get("v1", "services", service, "weights"), pages.weights_page)


def explain(
    service: ServiceArgument,
    endpoint: Annotated[
        str | None, typer.Argument(help="`ip:port`. All, if left out.", show_default=False)
    ] = None,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
    timeout: TimeoutOption = 5.0,
    addr: AddrOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the arithmetic from sample to weight: signals, law, every guard's effect."""
    client = admin_client(addr, config, timeout)
    reading = Reading(client=client, form=output, is_watching=watch, interval_seconds=interval)
    path = ("v1", "services", service, "explain")
    if endpoint is None:
        show(reading, lambda: client.get(*path), pages.explain_page)
    else:
        show(reading, lambda: client.get(*path, endpoint), pages.explain_endpoint_page)


def _all_weights(client: AdminClient) -> dict[str, object]:
    names = [found["service"] for found in client.get("v1", "services")["services"]]
    found = [client.get("v1", "services", name, "weights") for name in names]
    return {"schema_version": 1, "services": found}


def _all_weights_page(document: dict[str, object]) -> Page:
    found = document["services"]
    assert isinstance(found, list)  # noqa: S101 - made a few lines above
    return [item for service in found for item in pages.weights_page(service)]
