"""Texts that grow, beside and beneath each other: their last rows, each under a heading, at any size of a screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .columns import HEAD, cut
from .painting import Piece, text_of
from .samples import Sample
from .wrapping import GrowingText

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

LEAST_COLUMNS = 24  # of a text that stands beside another; a heading has room for the longest seed
LEAST_ROWS = 4  # of a text that stands above another, with its heading
GAP = 2
_ASIDE = "dim"


@dataclass(frozen=True, slots=True)
class OpenText:
    """A sample and its text, as far as both have come."""

    sample: Sample
    text: GrowingText = field(default_factory=GrowingText)


class Cell(NamedTuple):
    """What stands in a row from a column on."""

    column: int
    piece: Piece


def grid_rows(
    texts: Sequence[OpenText], *, num_samples: int, num_waiting: int, columns: int, rows: int
) -> list[list[Cell]]:
    """Give the last rows of as many texts as find a readable place, and say how many more there are.

    texts: those that have begun, by their number; num_waiting: samples that have not.
    columns, rows: the size of the screen, which nothing exceeds on any terminal; both at least 1.
    """
    most_across = max(1, (columns + GAP) // (LEAST_COLUMNS + GAP))
    has_note = rows > 2 and (num_waiting > 0 or len(texts) > most_across * _most_down(rows))
    room = rows - has_note
    shown = _chosen(texts, most_across * _most_down(room))
    num_bands = -(-len(shown) // most_across)
    across = -(-len(shown) // num_bands)
    width = (columns - GAP * (across - 1)) // across
    bands = [shown[first : first + across] for first in range(0, len(shown), across)]
    needs = [1 + max(len(one.text.last_rows(width, room)) for one in band) for band in bands]
    lines = [
        line
        for band, height in zip(bands, _shared(needs, room), strict=True)
        for line in _band(band, num_samples, width, height)
    ]
    if has_note:
        lines.append([Cell(0, Piece(_note(texts, shown, num_waiting, columns), _ASIDE))])
    return lines


def _most_down(rows: int) -> int:
    return max(1, rows // LEAST_ROWS)


def _chosen(texts: Sequence[OpenText], places: int) -> list[OpenText]:
    """Give the texts that are shown, by their number: those that still run before those that have ended."""
    by_need = sorted(texts, key=lambda one: (one.sample.finish_reason is not None, one.sample.index))
    return sorted(by_need[:places], key=lambda one: one.sample.index)


def _shared(needs: Sequence[int], rows: int) -> list[int]:
    """Share rows out evenly; what one does not need goes to the others."""
    heights = [0] * len(needs)
    for rank, i in enumerate(sorted(range(len(needs)), key=lambda i: needs[i])):
        heights[i] = min(needs[i], rows // (len(needs) - rank))
        rows -= heights[i]
    return heights


def _band(band: Sequence[OpenText], num_samples: int, width: int, height: int) -> list[list[Cell]]:
    """Give the rows of texts that stand beside each other; where there is but one row, it has no heading."""
    lines: list[list[Cell]] = [[] for _ in range(height)]
    for place, one in enumerate(band):
        pieces = [Piece(row) for row in one.text.last_rows(width, height - 1)]
        if height > 1:
            pieces = [Piece(heading(one.sample, num_samples, width), HEAD), *pieces]
        for line, piece in zip(lines, pieces, strict=False):
            line.append(Cell(place * (width + GAP), piece))
    return lines


def heading(sample: Sample, num_samples: int, width: int) -> str:
    """Name a sample with its seed, and how it ended, in as many words as there is room for."""
    seed = f"seed {sample.seed}"
    ended = "" if sample.finish_reason is None else f" · {sample.finish_reason}"
    number = sample.index + 1
    wordings = [
        f"sample {number} of {num_samples} · {seed}{ended}",
        f"{number} · {seed}{ended}",
        f"{seed}{ended}",
        seed,
    ]
    return next((one for one in wordings if len(one) <= width), cut(seed, width))


def _note(texts: Sequence[OpenText], shown: Sequence[OpenText], num_waiting: int, columns: int) -> str:
    """Say how many samples have no place on the screen, the running ones first."""
    ended = sum(one.sample.finish_reason is not None for one in texts)
    ended -= sum(one.sample.finish_reason is not None for one in shown)
    counts = {"more running": len(texts) - len(shown) - ended, "waiting": num_waiting, "ended": ended}
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    wordings = ["and " + ", ".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((one for one in wordings if len(one) <= columns), cut(wordings[-1], columns))


class GridRows:
    """Rows of cells for a console. Each cell begins where it should, however wide a terminal draws those before it."""

    def __init__(self, rows: Sequence[Sequence[Cell]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        from rich.control import Control
        from rich.segment import ControlType, Segment

        for cells in self._rows:
            for column, piece in cells:
                if column:
                    yield Control((ControlType.CURSOR_MOVE_TO_COLUMN, column)).segment
                yield from text_of([piece]).render(console)
            yield Segment.line()
