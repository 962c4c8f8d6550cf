"""Documents on their way from a file to the store."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from controlplane.cli.exits import ExitCode, fail, say
from controlplane.model.documents import MAX_DOCUMENT_BYTES
from controlplane.model.problems import Problem, Rejected

if TYPE_CHECKING:
    from controlplane.model.rollout import CanarySpec
    from controlplane.model.strategy import Strategy

STANDARD_INPUT = Path("-")
_YAML = frozenset({".yaml", ".yml"})


def read_document(path: Path) -> bytes:
    """Read a document as JSON; YAML (by its name) is turned into JSON. ``-`` is standard input, JSON.

    Ends the command with code 4 if there is no such file, 5 if it cannot be a document.
    """
    try:
        with sys.stdin.buffer if path == STANDARD_INPUT else path.open("rb") as file:
            body = file.read(MAX_DOCUMENT_BYTES + 1)
    except FileNotFoundError:
        fail(ExitCode.NOT_FOUND, f"there is no file `{path}`")
    except OSError as error:
        fail(ExitCode.FAILED, f"cannot read `{path}`: {error.strerror}")
    if len(body) > MAX_DOCUMENT_BYTES:
        refuse(str(path), Rejected((Problem("", f"is larger than {MAX_DOCUMENT_BYTES} bytes"),)))
    if path.suffix not in _YAML:
        return body
    from controlplane.sources import yaml_json

    try:
        return yaml_json.to_json(body)
    except ValueError as error:
        refuse(str(path), Rejected((Problem("", str(error)),)))


def parse_strategy(body: bytes, *, key: str) -> Strategy:
    """Parse a strategy, or end the command with code 5 and every problem."""
    from controlplane.core import parse

    found = parse.parse_strategy(body, key=key)
    return refuse(key, found) if isinstance(found, Rejected) else found


def parse_canary(body: bytes, *, key: str) -> CanarySpec:
    """Parse a canary, or end the command with code 5 and every problem."""
    from controlplane.core import parse

    found = parse.parse_canary(body, key=key)
    return refuse(key, found) if isinstance(found, Rejected) else found


def refuse(key: str, rejected: Rejected) -> NoReturn:
    """End the command with one line a problem: ``path: reason``."""
    say(f"error: `{key}` is refused")
    for problem in rejected.problems:
        say(f"  {problem}")
    raise typer.Exit(ExitCode.INVALID)


def pretty(body: bytes) -> bytes:
    """Indent JSON for people; what is not JSON stays as it is."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        return body
    return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"
