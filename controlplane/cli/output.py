"""Output: one page, four formats. Tables are for people, JSON and YAML for programs.

On a terminal Rich draws tables in colour. Off one, columns are padded with spaces, nothing is cut or
folded, and an empty cell is a ``-``, so that `awk` and `sort` can count on columns.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from controlplane.cli.exits import clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Format(enum.StrEnum):
    """How a page is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a sheet. A wide column is left out of plain tables."""

    title: str
    is_right: bool = False
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a Rich style, which only a terminal shows."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. Each row has one cell for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    title: str = ""

    def narrowed(self, *, is_wide: bool) -> Sheet:
        """Leave out wide columns unless they are wanted."""
        if is_wide:
            return self
        kept = [index for index, column in enumerate(self.columns) if not column.is_wide]
        return Sheet(
            tuple(self.columns[index] for index in kept),
            tuple(tuple(row[index] for index in kept) for row in self.rows),
            self.title,
        )


Page: TypeAlias = Sequence[Sheet | Cell | str]
"""Tables and lines, in order."""


def emit(document: Any, page: Page, form: Format, *, stream: TextIO | None = None) -> None:  # noqa: ANN401 - JSON
    """Write a document in one of the formats; `page` is how people see it."""
    target = stream or sys.stdout
    if form is Format.JSON:
        target.write(to_json(document, is_pretty=True))
    elif form is Format.YAML:
        target.write(to_yaml(document))
    elif target.isatty():
        terminal(target).print(drawing(page, is_wide=form is Format.WIDE))
    else:
        target.write(plain_text(page, is_wide=form is Format.WIDE))


def to_json(document: Any, *, is_pretty: bool = False) -> str:  # noqa: ANN401 - JSON
    """Write strict JSON with a line end; on one line unless `is_pretty`."""
    return json.dumps(document, allow_nan=False, indent=2 if is_pretty else None) + "\n"


def to_yaml(document: Any) -> str:  # noqa: ANN401 - JSON
    """Write a JSON document as YAML."""
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def plain_text(page: Page, *, is_wide: bool) -> str:
    """Write a page without colour, as wide as it needs to be."""
    parts: list[str] = []
    for item in page:
        if isinstance(item, Sheet):
            parts.append(_plain_sheet(item.narrowed(is_wide=is_wide)))
        else:
            parts.append(f"{_text(item)}\n")
    return "".join(parts)


def terminal(stream: TextIO) -> Console:
    """Make a console for a terminal; ``NO_COLOR`` and ``COLUMNS`` are Rich's to honour."""
    from rich.console import Console

    return Console(file=stream, highlight=False, emoji=False, markup=False)


def drawing(page: Page, *, is_wide: bool) -> RenderableType:
    """Draw a page for a terminal."""
    from rich.console import Group
    from rich.text import Text

    drawn: list[RenderableType] = []
    for item in page:
        if isinstance(item, Sheet):
            drawn.append(_table(item.narrowed(is_wide=is_wide)))
        else:
            drawn.append(Text(_text(item), style=_style(item)))
    return Group(*drawn)


def _table(sheet: Sheet) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=sheet.title or None, title_justify="left")
    for column in sheet.columns:
        table.add_column(column.title, justify="right" if column.is_right else "left", overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(_text(cell), style=_style(cell)) for cell in row))
    return table


def _plain_sheet(sheet: Sheet) -> str:
    lines = [[column.title.upper() for column in sheet.columns]]
    lines += [[_text(cell).replace("\n", " ") or "-" for cell in row] for row in sheet.rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(sheet.columns))]
    pads = [(str.rjust if column.is_right else str.ljust) for column in sheet.columns]
    text = "".join(
        "  ".join(pad(cell, width) for pad, cell, width in zip(pads, line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )
    return f"{sheet.title}\n{text}" if sheet.title else text


def _text(item: Cell | str) -> str:
    return clean(item.text if isinstance(item, Cell) else item)


def _style(item: Cell | str) -> str:
    return item.style if isinstance(item, Cell) else ""
