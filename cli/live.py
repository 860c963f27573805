"""The live view: finished lines are printed once, the open line and a table beneath it are redrawn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..generation.trace import Draw, Output
from .escaping import shown
from .samples import Sample
from .terminal import size_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from .tables import Names, SummaryRow

REDRAW_SECONDS = 0.1
_LEAST_TABLE = 3  # lines: what was chosen, the titles, one candidate


class LiveView:
    """Prints finished lines once, and redraws only the open line with the step's candidates beneath it."""

    def __init__(
        self, console: Console, summary: Console, names: Names, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._summary, self._names, self._clock = console, summary, names, clock
        self._live: Live | None = None
        self._reset()

    def _reset(self) -> None:
        self._finished: list[str] = []  # lines that are not on the screen yet
        self._open = OpenLine()
        self._draw: Draw | None = None
        self._rows: list[SummaryRow] = []
        self._drawn_at = float("-inf")

    def begin(self, index: int) -> None:
        """Part this sample from the one before."""
        self._reset()
        if index:
            self._print("---")

    def show(self, output: Output) -> None:
        """Take what a step did, and redraw if the last time is long enough ago."""
        from .tables import summary_row

        first, *others = shown(output.text).split("\n")
        self._open.add(first)
        for piece in others:
            self._finished.append(self._open.text)
            self._open = OpenLine(piece)
        if output.draw is not None:
            self._draw = output.draw
            self._rows.append(summary_row(len(self._rows) + 1, output.draw, self._names))
        if self._clock() - self._drawn_at >= REDRAW_SECONDS:
            self._redraw()

    def end(self, sample: Sample) -> None:
        """Print the rest of the text, then one line for every token."""
        from .tables import summary_table

        self.close()
        if self._rows:
            width = size_of(self._summary.file)[0]
            self._summary.print()
            self._summary.print(summary_table(self._rows, width=width), soft_wrap=True)
        self._rows = []

    def close(self) -> None:
        """Take the live part away and print the text that was in it."""
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None
        if self._open.text:
            self._finished.append(self._open.text)
            self._open = OpenLine()
        self._print_finished()

    def _redraw(self) -> None:
        from rich.console import Group
        from rich.live import Live

        columns, rows = size_of(self._console.file)
        self._console.size = columns, rows  # Rich would ask the environment first
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
        self._print_finished()
        self._live.update(Group(*self._fitted(columns - 1, rows - 1)), refresh=True)
        self._drawn_at = self._clock()

    def _fitted(self, columns: int, rows: int) -> list[RenderableType]:
        """Give the open line's last rows and the table, in `rows` rows together; the text always has one."""
        from rich.text import Text

        from .tables import candidate_table

        candidates = len(self._draw.candidates) if self._draw else 0
        for_table = min(candidates + 2, rows - 1) if candidates else 0
        for_table = for_table if for_table >= _LEAST_TABLE and columns > 1 else 0
        text = self._open.last_rows(columns, max(rows - for_table, 1))
        lines: list[RenderableType] = [Text(row, no_wrap=True) for row in text]
        if self._draw is not None and for_table:
            lines.append(candidate_table(len(self._rows), self._draw, self._names, width=columns, max_rows=for_table))
        return lines

    def _print_finished(self) -> None:
        if self._finished:
            self._print("\n".join(self._finished))
            self._finished = []

    def _print(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text), soft_wrap=True)


class OpenLine:
    """The line that is not finished: its text, and its rows on a screen, wrapped once as it grows."""

    def __init__(self, text: str = "") -> None:
        self._pieces = [text]
        self._columns = 0
        self._rows: list[str] = [""]
        self._used = 0  # columns of the last row
        self._new = text  # what is not in rows yet

    @property
    def text(self) -> str:
        """The whole line."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def add(self, piece: str) -> None:
        """Add text without a newline."""
        self._pieces.append(piece)
        self._new += piece

    def last_rows(self, columns: int, count: int) -> Sequence[str]:
        """Give the last `count` rows of the line, none wider than `columns` on any terminal."""
        if columns != self._columns:
            self._columns, self._rows, self._used, self._new = columns, [""], 0, self.text
        for char in self._new:
            width = _most_columns(char)
            if self._used + width > max(columns, 2):
                self._rows.append("")
                self._used = 0
            self._rows[-1] += " " * width if char == "\t" else char
            self._used += width
        self._new = ""
        return self._rows[-count:]


def _most_columns(char: str) -> int:
    """Give the most columns that any terminal gives a character; joined emoji are taken one by one."""
    from rich.cells import get_character_cell_size

    if char == "\t":
        return 4
    return 1 if "\ufe00" <= char <= "\ufe0f" else get_character_cell_size(char)
