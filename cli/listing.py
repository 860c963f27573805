"""Lists on standard output: cut to a terminal's width, whole in a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from .columns import WIDE, Column, Row, lines_of
from .escaping import shown_in_cell
from .terminal import console_for, is_terminal, width_of


class Heading(NamedTuple):
    """A column of a list: its title, how soon it goes when room is short, and the width to which it gives way."""

    title: str
    need: int  # 0 stays longest
    least: int = 0  # 0: it does not give way


def print_list(headings: Sequence[Heading], rows: Sequence[Sequence[str]], *, has_titles: bool) -> None:
    """Write rows under each other. On a terminal none is wider than it."""
    cells = [[shown_in_cell(cell) for cell in row] for row in rows]
    titles = [heading.title if has_titles else "" for heading in headings]
    widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    whole = sum(widths) + 2 * len(widths)
    width = width_of(sys.stdout) if is_terminal(sys.stdout) else max(whole, WIDE)
    columns = [
        Column(title, most, heading.need, is_right=False, least=min(heading.least, most))
        for title, most, heading in zip(titles, widths, headings, strict=True)
    ]
    lines = lines_of(columns, [Row(row) for row in cells], width)
    console = console_for(sys.stdout, "auto")
    for line in lines if has_titles else lines[1:]:
        console.print(line, soft_wrap=True)
