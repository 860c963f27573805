"""What shows a run as it goes, and its plain forms: the text alone, and the text with tables elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TextIO

from ..generation.trace import Output
from .escaping import shown
from .samples import Sample
from .shared_line import line_end, wrote

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from .margin_words import MarginWords
    from .tables import Names


class View(Protocol):
    """Shows samples one after the other."""

    def begin(self, index: int) -> None:
        """Start the sample with this index."""

    def show(self, output: Output) -> None:
        """Show what a step did."""

    def end(self, sample: Sample) -> None:
        """Show what only a whole sample has."""

    def close(self) -> None:
        """Leave the screen in order, however the run ended."""


class Overview(Protocol):
    """Shows samples that run together, as they come."""

    def follow(self, sample: Sample, output: Output) -> None:
        """Take what a step did for a sample."""

    def redraw(self) -> None:
        """Show how far all have come, now and then."""


class TextView:
    """Writes the text: to a pipe or a file as it is, to a terminal with control characters shown."""

    def __init__(self, out: TextIO, *, is_terminal: bool) -> None:
        self._out, self._is_terminal = out, is_terminal
        self._ends_line = True

    def begin(self, index: int) -> None:
        """Part this sample from the one before."""
        if index:
            self._write("---\n" if self._is_terminal else "\n---\n")

    def show(self, output: Output) -> None:
        """Write the new text and send it on its way."""
        if output.text:
            self._write(shown(output.text) if self._is_terminal else output.text)

    def end(self, sample: Sample) -> None:
        """End the last line on a terminal."""
        self.close()

    def close(self) -> None:
        """End the last line on a terminal."""
        if self._is_terminal and not self._ends_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._ends_line = text.endswith("\n")
        wrote(text, self._out)


class TableView:
    """Writes the text, and what there is to say of each step as plain tables elsewhere.

    words: for the stages and margins; None where they are not wanted.
    """

    def __init__(self, text: View, console: Console, names: Names, words: MarginWords | None = None) -> None:
        self._text, self._console, self._names, self._words = text, console, names, words
        self._step = 0

    def begin(self, index: int) -> None:
        """Start to count steps."""
        self._text.begin(index)
        self._step = 0

    def show(self, output: Output) -> None:
        """Write the text and the tables."""
        from .step_tables import step_lines

        self._text.show(output)
        if output.draw is not None:
            self._step += 1
            self._print(step_lines(self._step, output.draw, self._names, self._words, width=self._console.width))

    def end(self, sample: Sample) -> None:
        """End the text, and write the margins of the whole of it."""
        from .stage_tables import unchanged_lines

        self._text.end(sample)
        if self._words is not None and sample.margins:
            self._print(unchanged_lines(sample.margins, self._words, width=self._console.width))

    def close(self) -> None:
        """End the text."""
        self._text.close()

    def _print(self, lines: Sequence[RenderableType]) -> None:
        from rich.console import Group

        line_end(self._console.file)  # which this blank line is: text and tables may go to the same place
        self._console.print()
        self._console.print(Group(*lines), soft_wrap=True)
