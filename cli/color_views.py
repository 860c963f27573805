"""Text in the colours of its tokens, with the legend; and where there is no colour, a list beneath it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ..generation.trace import Output
from .coloring import Coloring, Measure
from .painting import Cursor, ansi
from .samples import Sample
from .shared_line import line_end
from .terminal import size_of
from .views import TextView, View

if TYPE_CHECKING:
    from rich.console import Console

    from .color_list import MeasuredToken
    from .tables import Names


class ColoredTextView(TextView):
    """Writes the text in colours, control characters shown wherever it goes."""

    def __init__(self, out: TextIO, coloring: Coloring, *, is_terminal: bool) -> None:
        super().__init__(out, is_terminal=is_terminal)
        self._coloring, self._cursor = coloring, Cursor()

    def begin(self, index: int) -> None:
        """Part this sample from the one before."""
        super().begin(index)
        self._coloring.begin()
        self._cursor.column = 0

    def show(self, output: Output) -> None:
        """Write the new text and send it on its way."""
        if pieces := self._coloring.pieces(output):
            columns = size_of(self._out)[0] if self._is_terminal else None
            self._write(ansi(pieces, self._cursor, columns))


class LegendView:
    """Says what the colours mean before the first text of another view."""

    def __init__(self, inner: View, console: Console, coloring: Coloring) -> None:
        self._inner, self._console, self._coloring = inner, console, coloring
        self._is_told = False

    def begin(self, index: int) -> None:
        """Start the sample with this index."""
        self._inner.begin(index)

    def show(self, output: Output) -> None:
        """Show what a step did, the first time after the legend."""
        if not self._is_told:
            for line in self._coloring.legend(self._console.width):
                self._console.print(line, soft_wrap=True)
            self._is_told = True
        self._inner.show(output)

    def end(self, sample: Sample) -> None:
        """Show what only a whole sample has."""
        self._inner.end(sample)

    def close(self) -> None:
        """Leave the screen in order."""
        self._inner.close()


class ListView:
    """Lists beneath the text of another view what a colour would have said of each token."""

    def __init__(self, inner: View, console: Console, names: Names, measure: Measure) -> None:
        self._inner, self._console, self._names, self._measure = inner, console, names, measure
        self._tokens: list[MeasuredToken] = []

    def begin(self, index: int) -> None:
        """Start the sample with this index."""
        self._inner.begin(index)
        self._tokens = []

    def show(self, output: Output) -> None:
        """Show what a step did, and keep what there is to say of its token."""
        from .color_list import measured_token

        self._inner.show(output)
        if output.draw is not None:
            self._tokens.append(measured_token(output.draw, self._names, self._measure))

    def end(self, sample: Sample) -> None:
        """Show what only a whole sample has, then its seed and the list."""
        from rich.text import Text

        from .color_list import color_list

        self._inner.end(sample)
        if self._tokens:
            line_end(self._console.file)  # which this blank line is: text and list may go to the same place
            self._console.print()
            lines = color_list(self._tokens, self._measure, width=self._console.width)
            for line in (Text(f"seed {sample.seed}"), *lines):
                self._console.print(line, soft_wrap=True)
        self._tokens = []

    def close(self) -> None:
        """Leave the screen in order."""
        self._inner.close()
