"""What shows a run as it goes, and its plain forms: the text alone, and the text with tables elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TextIO

from ..generation.trace import Output
from .escaping import shown
from .samples import Sample

if TYPE_CHECKING:
    from rich.console import Console

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


class TableView:
    """Writes the text, and each step's candidates as a plain table elsewhere."""

    def __init__(self, text: View, console: Console, names: Names) -> None:
        self._text, self._console, self._names = text, console, names
        self._step = 0

    def begin(self, index: int) -> None:
        """Start to count steps."""
        self._text.begin(index)
        self._step = 0

    def show(self, output: Output) -> None:
        """Write the text and the table."""
        from .tables import candidate_table

        self._text.show(output)
        if output.draw is not None:
            self._step += 1
            table = candidate_table(self._step, output.draw, self._names, width=self._console.width)
            self._console.print()  # first: text and tables may go to the same place
            self._console.print(table, soft_wrap=True)

    def end(self, sample: Sample) -> None:
        """End the text."""
        self._text.end(sample)

    def close(self) -> None:
        """End the text."""
        self._text.close()
