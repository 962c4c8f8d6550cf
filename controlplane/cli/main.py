"""The command line. Commands live in their own modules and import what is heavy when they run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from controlplane import __version__
from controlplane.cli import readers
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


app.command()(readers.status)
app.command()(readers.weights)
app.command()(readers.explain)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app()
    except KeyboardInterrupt:  # before a command was running, or after it ended
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        silence()
        sys.exit(ExitCode.OK)
