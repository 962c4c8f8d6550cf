"""Show a document once, or again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from controlplane.cli.exits import say
from controlplane.cli.options import Reading
from controlplane.cli.output import Format, Page, drawing, emit, terminal, to_json, to_yaml
from controlplane.errors import AdminError

Fetch = Callable[[], dict[str, Any]]
Draw = Callable[[dict[str, Any]], Page]


def show(reading: Reading, fetch: Fetch, draw: Draw) -> None:
    """Fetch and write one document, or with `--watch` one at each interval until interrupted.

    While watching, a control plane that restarts is waited for: only the first failure to reach it
    ends the command.

    Raises:
        AdminError: if there is no answer, or none the first time.
        TimeoutError: the same, for an answer that is late.
    """
    document = fetch()
    if not reading.is_watching:
        emit(document, draw(document), reading.form)
        return
    is_drawn = reading.form in {Format.TABLE, Format.WIDE} and sys.stdout.isatty()
    (_watch_terminal if is_drawn else _watch_stream)(reading, document, fetch, draw)


def _watch_stream(reading: Reading, document: dict[str, Any], fetch: Fetch, _draw: Draw) -> None:
    while True:
        _write_record(sys.stdout, document, reading.form)
        document = _next(reading, fetch)


def _write_record(stream: TextIO, document: dict[str, Any], form: Format) -> None:
    stream.write(f"---\n{to_yaml(document)}" if form is Format.YAML else to_json(document))
    stream.flush()


def _watch_terminal(reading: Reading, document: dict[str, Any], fetch: Fetch, draw: Draw) -> None:
    from rich.live import Live

    is_wide = reading.form is Format.WIDE
    with Live(console=terminal(sys.stdout), auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(drawing(draw(document), is_wide=is_wide), refresh=True)
            document = _next(reading, fetch)


def _next(reading: Reading, fetch: Fetch) -> dict[str, Any]:
    is_reported = False
    while True:
        time.sleep(reading.interval_seconds)
        try:
            return fetch()
        except (AdminError, TimeoutError) as error:
            if not is_reported:
                say(f"waiting: {error}")
                is_reported = True
