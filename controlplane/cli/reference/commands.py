"""`cli.md`, from the Typer app."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import typer.main

from controlplane.cli.exits import ExitCode
from controlplane.cli.main import app
from controlplane.cli.reference.markdown import code, page, table

_INTRODUCTION = """
Data goes to standard output, everything else to standard error. On a terminal, tables have colours;
off one, nothing is cut or folded, and an empty cell is `-`. `-o json` is strict JSON with a
`schema_version`. `NO_COLOR` and `COLUMNS` are honoured; a closed pipe and Ctrl-C end a command quietly.
"""

_MEANINGS = {
    ExitCode.OK: "ok",
    ExitCode.FAILED: "failed, rolled back, or differences found",
    ExitCode.USAGE: "wrong usage, or a wrong setting",
    ExitCode.UNREACHABLE: "a peer is unreachable",
    ExitCode.NOT_FOUND: "not found",
    ExitCode.INVALID: "invalid document, or somebody else wrote first",
    ExitCode.TIMEOUT: "timeout",
    ExitCode.INTERRUPTED: "interrupted",
}


def commands_page() -> str:
    """Describe every command with its arguments and options."""
    codes = table(("code", "meaning"), [(str(each.value), text) for each, text in _MEANINGS.items()])
    sections = [
        section
        for path, command in _walk(typer.main.get_command(app), "trimtab")
        for section in _section(path, command)
    ]
    return page("Command line", _INTRODUCTION, "## Exit codes", codes, *sections)


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - typer vendors click privately
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from _walk(child, f"{path} {name}")


def _section(path: str, command: Any) -> list[str]:  # noqa: ANN401 - the same
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join([path, *(_usage(each) for each in arguments), "[OPTIONS]"])
    parts = [f"## `{path}`", _sentence(command.help or ""), f"```\n{usage}\n```"]
    if arguments:
        named = [(code(each.name.upper()), each.help or "") for each in arguments]
        parts.append(table(("argument", "meaning"), named))
    if options:
        rows = [(_flags(each), each.help or "", _default(each)) for each in options]
        parts.append(table(("option", "meaning", "default"), rows))
    return parts


def _usage(argument: Any) -> str:  # noqa: ANN401 - the same
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _flags(option: Any) -> str:  # noqa: ANN401 - the same
    return ", ".join(code(flag) for flag in option.opts)


def _default(option: Any) -> str:  # noqa: ANN401 - the same
    value = option.default
    if value is None or value is False or value == [] or callable(value):
        return ""
    return code(str(value.value if isinstance(value, enum.Enum) else value))


def _sentence(text: str) -> str:
    return " ".join(text.split())
