"""How the command line ends: exit codes, one line on standard error, and never a traceback for what
was to be expected.

=====  =============================================
0      ok
1      failed, rolled back, or differences found
2      usage, settings
3      a peer is unreachable
4      not found
5      invalid document, or somebody else wrote first
124    timeout
130    interrupted
=====  =============================================
"""

from __future__ import annotations

import enum
import os
import sys
from http import HTTPStatus
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from controlplane.errors import (
    AdminError,
    DocumentConflict,
    SettingsError,
    SourceUnreachable,
    TrimtabError,
)


class ExitCode(enum.IntEnum):
    """Exit codes, by meaning."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    INVALID = 5
    TIMEOUT = 124
    INTERRUPTED = 130


def code_of(error: Exception) -> ExitCode:
    """Tell the exit code of an error."""
    if isinstance(error, TimeoutError):
        return ExitCode.TIMEOUT
    if isinstance(error, AdminError):
        if error.status is None:
            return ExitCode.UNREACHABLE
        return ExitCode.NOT_FOUND if error.status == HTTPStatus.NOT_FOUND else ExitCode.FAILED
    by_class = {
        SettingsError: ExitCode.USAGE,
        SourceUnreachable: ExitCode.UNREACHABLE,
        DocumentConflict: ExitCode.INVALID,
    }
    return next((code for kind, code in by_class.items() if isinstance(error, kind)), ExitCode.FAILED)


def fail(code: ExitCode, message: str, *, hint: str = "") -> NoReturn:
    """End the command with one line on standard error, and a hint under it if there is one."""
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
    raise typer.Exit(code)


def say(text: str) -> None:
    """Write one line to standard error: whatever is not data."""
    sys.stderr.write(f"{clean(text)}\n")
    sys.stderr.flush()


def clean(text: str) -> str:
    """Replace control characters: text from elsewhere must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


class TrimtabGroup(TyperGroup):
    """The root command: turns errors raised on purpose into exit codes.

    Inside the app and not around it, so that it is also what tests see.
    """

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer vendors click's types privately
        """Run a command; leave by an exit code whatever happens that was to be expected."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            silence()
            raise typer.Exit(ExitCode.OK) from None  # the reader has what it wanted
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except TimeoutError as error:
            fail(ExitCode.TIMEOUT, str(error) or "timed out")
        except TrimtabError as error:
            fail(code_of(error), str(error), hint=_hint(error))
        return result


def silence() -> None:
    """Send the rest of standard output nowhere: Python flushes once more when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file, as under a test runner
        return


def _hint(error: TrimtabError) -> str:
    if isinstance(error, DocumentConflict):
        return "somebody else wrote it first: read it again, then repeat"
    if isinstance(error, AdminError) and error.status is None:
        return "is `trimtab serve` running there? `--addr` names another address"
    if isinstance(error, SourceUnreachable):
        return "`trimtab check` tests every peer"
    return ""
