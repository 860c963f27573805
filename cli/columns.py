"""Lines that hold at any width: the columns needed least go first, then one gives way; what is cut says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.text import Text

from .escaping import shown_in_cell

HEAD = "bold"
WIDE = 60  # columns from which there is room for two between cells, and for whole titles


class Column(NamedTuple):
    """A column: its title, its width, how soon it goes when room is short, and its side."""

    title: str
    width: int
    need: int  # 0 stays longest
    is_right: bool = True
    least: int = 0  # the width to which it gives way; 0: it does not


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a cell for each column, and a style."""

    cells: Sequence[str]
    style: str = ""


def lines_of(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[RenderableType]:
    """Write titles and rows as lines of at most `width` columns. One column at most gives way."""
    gap = 2 if width >= WIDE else 1
    widths = [column.least or _width(i, column, rows) for i, column in enumerate(columns)]
    kept = _fitting(columns, widths, gap, width)
    for i in (i for i in kept if columns[i].least):
        spare = width - _total(kept, widths, gap)
        widths[i] = max(1, min(columns[i].width, columns[i].least + spare))
    if not columns[kept[-1]].is_right:  # the last column takes what is left
        widths[kept[-1]] += max(0, width - _total(kept, widths, gap))

    def line(cells: Sequence[str], style: str) -> Text:
        written = (_cell(cells[i], widths[i], columns[i].is_right) for i in kept)
        return Text(cut((" " * gap).join(written), width).rstrip(), style=style, no_wrap=True)

    return [line([column.title for column in columns], HEAD), *(line(row.cells, row.style) for row in rows)]


def filled(parts: Sequence[Text], width: int, *, between: str = " · ") -> list[Text]:
    """Join parts to lines of at most `width` columns, broken between parts where that is possible."""
    lines: list[Text] = []
    for part in parts:
        part.truncate(width, overflow="ellipsis" if width > 1 else "crop")
        if lines and lines[-1].cell_len + cell_len(between) + part.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], between, part, no_wrap=True)
        else:
            lines.append(part)
    return lines


def cut(text: str, width: int) -> str:
    """Cut a line to `width` columns, with a mark where something is missing."""
    text = shown_in_cell(text)
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…" if width > 1 else set_cell_size(text, width)


def _width(index: int, column: Column, rows: Sequence[Row]) -> int:
    """Give a column's width: the same at each step, but no number is cut."""
    if not column.is_right:
        return column.width
    return max([column.width, *(cell_len(row.cells[index]) for row in rows)])


def _fitting(columns: Sequence[Column], widths: Sequence[int], gap: int, width: int) -> list[int]:
    """Give the columns to keep: those needed least go first."""
    kept = list(range(len(columns)))
    for i in sorted(kept, key=lambda i: -columns[i].need):
        if _total(kept, widths, gap) <= width or columns[i].need == 0:
            break
        kept.remove(i)
    return kept


def _total(kept: Sequence[int], widths: Sequence[int], gap: int) -> int:
    return sum(widths[i] for i in kept) + gap * (len(kept) - 1)


def _cell(text: str, width: int, is_right: bool) -> str:
    short = cut(text, width)
    room = " " * (width - cell_len(short))
    return room + short if is_right else short + room
