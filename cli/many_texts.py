"""The live view of texts that come together: the running ones are redrawn, and each is printed whole in its turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..generation.trace import Output
from .escaping import shown
from .live_region import REDRAW_SECONDS, LiveRegion
from .samples import Sample
from .text_grid import GridRows, OpenText, grid_rows
from .views import View

if TYPE_CHECKING:
    from rich.console import Console


class ManyTexts:
    """Shows samples that run together on a terminal, side by side or one below the other.

    As a view it prints a sample once its turn is over, above those that still run: at the end the texts stand there
    whole and in order, as `text` writes them. As an overview it redraws what has not been printed.
    """

    def __init__(
        self, text: View, console: Console, num_samples: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._text, self._region, self._num_samples, self._clock = text, LiveRegion(console), num_samples, clock
        self._open: dict[int, OpenText] = {}  # of samples that have begun and are not printed
        self._num_begun = 0
        self._size: tuple[int, int] | None = None  # of the terminal, when it was last looked at
        self._looked_at = float("-inf")

    def follow(self, sample: Sample, output: Output) -> None:
        """Take what a step did for a sample."""
        if sample.index not in self._open:
            self._open[sample.index] = OpenText(sample)
            self._num_begun += 1
        self._open[sample.index].text.add(shown(output.text))

    def redraw(self) -> None:
        """Redraw, if the last time is long enough ago, and unless the terminal is changing its size."""
        if self._clock() - self._looked_at < REDRAW_SECONDS:
            return
        self._looked_at = self._clock()
        before, self._size = self._size, self._region.size()
        if self._open and before in (None, self._size):
            self._draw(*self._size)

    def begin(self, index: int) -> None:
        """A text is begun when it is printed."""

    def show(self, output: Output) -> None:
        """A text is printed whole."""

    def end(self, sample: Sample) -> None:
        """Print the text of a sample."""
        self._region.clear()
        self._open.pop(sample.index, None)
        self._print(sample)

    def close(self) -> None:
        """Take the live part away, and print what there is of the texts that were in it."""
        self._region.clear()
        for index in sorted(self._open):
            self._print(self._open.pop(index).sample)

    def _print(self, sample: Sample) -> None:
        self._text.begin(sample.index)
        self._text.show(Output(request_id="", text=sample.text))
        self._text.end(sample)

    def _draw(self, columns: int, rows: int) -> None:
        texts = [self._open[index] for index in sorted(self._open)]
        grid = grid_rows(
            texts,
            num_samples=self._num_samples,
            num_waiting=self._num_samples - self._num_begun,
            columns=max(columns - 1, 1),
            rows=max(rows - 1, 1),
        )
        self._region.draw(GridRows(grid))
