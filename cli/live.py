"""The live view: finished lines are printed once, the open line and the tables beneath it are redrawn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..generation.trace import Draw, Output
from .escaping import shown
from .live_region import REDRAW_SECONDS, LiveRegion
from .open_line import OpenLine
from .painting import FinishedLines, Piece, text_of
from .samples import Sample
from .terminal import size_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from .coloring import Coloring
    from .margin_words import MarginWords
    from .stage_tables import StageNote
    from .tables import Names, SummaryRow

_SHARE_OF_TEXT = 6  # the text has at least one row in so many


class LiveView:
    """Prints finished lines once, and redraws only the open line with what there is to say of the step beneath it.

    words: for the stages and margins, None where they are not wanted; coloring: None for text without colours.
    """

    def __init__(
        self,
        console: Console,
        summary: Console,
        names: Names,
        *,
        words: MarginWords | None = None,
        coloring: Coloring | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._summary, self._names, self._clock = console, summary, names, clock
        self._words, self._coloring = words, coloring
        self._region = LiveRegion(console)
        self._reset()

    def _reset(self) -> None:
        self._finished: list[Sequence[Piece]] = []  # lines that are not on the screen yet
        self._open = OpenLine()
        self._draw: Draw | None = None
        self._rows: list[SummaryRow] = []
        self._kept: list[StageNote] = []  # of each row's stages
        self._drawn_at = float("-inf")
        if self._coloring is not None:
            self._coloring.begin()

    def begin(self, index: int) -> None:
        """Part this sample from the one before."""
        self._reset()
        if index:
            self._print([[Piece("---")]])

    def show(self, output: Output) -> None:
        """Take what a step did, and redraw if the last time is long enough ago."""
        from .stage_tables import stage_note
        from .tables import summary_row

        for text, style in self._coloring.pieces(output) if self._coloring else [Piece(shown(output.text))]:
            first, *others = text.split("\n")
            self._open.add(Piece(first, style))
            for line in others:
                self._finish_line()
                self._open.add(Piece(line, style))
        if output.draw is not None:
            self._draw = output.draw
            self._rows.append(summary_row(len(self._rows) + 1, output.draw, self._names))
            if self._words is not None:
                self._kept.append(stage_note(output.draw, self._words))
        if self._clock() - self._drawn_at >= REDRAW_SECONDS:
            self._redraw()

    def _finish_line(self) -> None:
        self._finished.append(self._open.pieces)
        self._open = OpenLine()

    def end(self, sample: Sample) -> None:
        """Print the rest of the text, then one line for every token, then the margins of the whole text."""
        from rich.console import Group

        from .stage_tables import unchanged_lines

        self.close()
        if self._rows:
            width = size_of(self._summary.file)[0]
            self._summary.print()
            self._summary.print(Group(*self._summary_lines(width)), soft_wrap=True)
            if self._words is not None and sample.margins:
                self._summary.print(Group(*unchanged_lines(sample.margins, self._words, width=width)), soft_wrap=True)
        self._rows = []

    def _summary_lines(self, width: int) -> list[RenderableType]:
        """Give a line for each token, and beneath it what is kept of its stages."""
        from .stage_tables import note_lines
        from .tables import summary_table

        title, *lines = summary_table(self._rows, width=width).renderables
        if self._words is None:
            return [title, *lines]
        pairs = zip(lines, self._kept, strict=True)
        return [title, *(each for line, note in pairs for each in (line, *note_lines(note, width=width)))]

    def close(self) -> None:
        """Take the live part away and print the text that was in it."""
        self._region.clear()
        if self._open.pieces:
            self._finish_line()
        self._print_finished()

    def _redraw(self) -> None:
        from rich.console import Group

        columns, rows = self._region.size()
        self._print_finished()
        self._region.draw(Group(*self._fitted(columns - 1, rows - 1)))
        self._drawn_at = self._clock()

    def _fitted(self, columns: int, rows: int) -> list[RenderableType]:
        """Give the open line's last rows and the tables, in `rows` rows together; the text always has one."""
        from .step_tables import fitted_step_lines

        lines: list[RenderableType] = []
        if self._draw is not None:
            room = rows - max(rows // _SHARE_OF_TEXT, 1)
            lines = fitted_step_lines(len(self._rows), self._draw, self._names, self._words, width=columns, rows=room)
        text = self._open.last_rows(columns, max(rows - len(lines), 1))
        return [*map(text_of, text), *lines]

    def _print_finished(self) -> None:
        if self._finished:
            self._print(self._finished)
            self._finished = []

    def _print(self, lines: Sequence[Sequence[Piece]]) -> None:
        self._console.print(FinishedLines(lines), soft_wrap=True)
