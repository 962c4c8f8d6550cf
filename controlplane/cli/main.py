"""The command line. Commands live in their own modules and import what is heavy when they run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from controlplane import __version__
from controlplane.cli import canary, check, demo, freeze, readers, serve, sim_server, strategy
from controlplane.cli.exits import ExitCode, TrimtabGroup, silence

app = typer.Typer(
    name="trimtab",
    cls=TrimtabGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # they print local variables, and one may be a secret
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"trimtab {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Steer Envoy's Maglev weights from live metrics."""


app.command()(serve.serve)
app.command()(demo.demo)
app.command()(check.check)
app.command()(readers.status)
app.command()(readers.weights)
app.command()(readers.explain)
app.add_typer(strategy.app, name="strategy")
app.add_typer(canary.app, name="canary")
app.command()(freeze.freeze)
app.command()(freeze.unfreeze)
app.command("sim-server")(sim_server.sim_server)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app()
    except KeyboardInterrupt:  # before a command was running, or after it ended
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        silence()
        sys.exit(ExitCode.OK)
