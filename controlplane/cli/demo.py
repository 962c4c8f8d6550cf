"""`trimtab demo`: everything on this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running at the end, until Ctrl-C.")
    ] = False,
    rate: Annotated[float, typer.Option("--rate", help="Requests per second.", min=1, max=1000)] = 24.0,
    sessions: Annotated[int, typer.Option("--sessions", help="Conversations.", min=1, max=100_000)] = 120,
) -> None:
    """Run a real Envoy, simulated model servers and load; exit code 0 only if all it shows happened."""
    from controlplane.demo import script

    options = script.DemoOptions(keep=keep, requests_per_second=rate, sessions=sessions)
    raise typer.Exit(script.run(options))
