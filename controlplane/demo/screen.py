"""What the audience sees: a live table on a terminal, plain lines off one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model server, as Envoy and the load see it now."""

    name: str
    version: str
    speed: float
    weight: int
    weight_share: float
    request_share: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One picture."""

    act: str
    seconds: float
    rows: Sequence[Row]
    figures: Mapping[str, str]


class Screen(Protocol):
    """Shows frames and notable events."""

    def show(self, frame: Frame) -> None:
        """Show the newest picture."""
        ...

    def say(self, text: str) -> None:
        """Tell one thing that happened."""
        ...

    def close(self) -> None:
        """Leave the screen as it is."""
        ...


class PlainScreen:
    """One line an event, and a line of weights every few seconds, on standard error."""

    _EVERY_SECONDS = 5.0

    def __init__(self) -> None:
        self._shown_at = float("-inf")

    def show(self, frame: Frame) -> None:
        """Print the weights' shares now and then."""
        if frame.seconds - self._shown_at < self._EVERY_SECONDS:
            return
        self._shown_at = frame.seconds
        shares = " ".join(
            f"{row.name}={row.weight_share:.0%}/{row.request_share:.0%}" for row in frame.rows
        )
        figures = " ".join(f"{name}={value}" for name, value in frame.figures.items())
        print(f"[{frame.seconds:5.1f}s] {frame.act}: weight/requests {shares} {figures}", file=sys.stderr)

    def say(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


class LiveScreen:
    """A table that redraws itself, with the latest events below."""

    _EVENTS = 12

    def __init__(self) -> None:
        self._events: list[str] = []
        self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=False)
        self._live.start()
        self._table: Table | None = None

    def show(self, frame: Frame) -> None:
        """Redraw the table."""
        table = Table(title=f"{frame.act} · {frame.seconds:.0f} s", title_justify="left", expand=False)
        for column in ("server", "version", "GPU"):
            table.add_column(column)
        for column in ("weight in Envoy", "share", "requests"):
            table.add_column(column, justify="right")
        table.add_column("")
        for row in frame.rows:
            bar = "█" * round(40 * row.weight_share)
            table.add_row(
                row.name,
                row.version,
                f"{row.speed:g}×",
                f"{row.weight}",
                f"{row.weight_share:.1%}",
                f"{row.request_share:.1%}",
                Text(f"{bar} {row.note}", style="red" if row.note else "green"),
            )
        table.caption = "   ".join(f"{name} {value}" for name, value in frame.figures.items())
        self._table = table
        self._draw()

    def say(self, text: str) -> None:
        """Add an event below the table."""
        self._events = [*self._events, text][-self._EVENTS :]
        self._draw()

    def close(self) -> None:
        """Stop redrawing."""
        self._live.stop()

    def _draw(self) -> None:
        lines = [Text(event) for event in self._events]
        self._live.update(Group(*([self._table] if self._table else []), *lines))


def open_screen() -> Screen:
    """Choose by what standard error is."""
    return LiveScreen() if sys.stderr.isatty() else PlainScreen()
