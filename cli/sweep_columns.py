"""A table of combinations at any width: titles get shorter, then the values of the settings make way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from .columns import WIDE, Column, Row, lines_of
from .setting_words import written
from .sweep_texts import Combination

_SHORT_TITLES = (5, 3)  # columns of a setting's name where room is short


class CombinationTable:
    """Lines with the number and the values of each combination before its other cells, one line of titles first.

    forms: the other columns with ever shorter titles; of the last, those needed least go where room is short.
    `names_values` tells whether there was room for the values.
    """

    def __init__(
        self,
        combinations: Sequence[Combination],
        forms: Sequence[Sequence[Column]],
        rows: Sequence[Sequence[str]],
        width: int,
    ) -> None:
        self._numbers = [str(each.index + 1) for each in combinations]
        self._values = [[*map(written, each.values.values())] for each in combinations]
        self._titles, self._width = list(combinations[0].values), width
        columns = self._fitting(forms)
        self.names_values = len(columns) > len(forms[0]) + 1 or not self._titles
        cells = [
            [number, *(values if self.names_values else []), *row]
            for number, values, row in zip(self._numbers, self._values, rows, strict=True)
        ]
        self.lines = lines_of(columns, [*map(Row, cells)], width)

    def _fitting(self, forms: Sequence[Sequence[Column]]) -> list[Column]:
        """Choose columns: whole titles, then short ones, then values without their names, then none of them."""
        number = Column("", widest(self._numbers, 1), 0)
        for form in forms:
            if self._fits(every := [number, *self._axes(None), *form]):
                return every
        needed = [column for column in forms[-1] if column.need <= 1]
        for most in _SHORT_TITLES:
            axes = self._axes(most)
            if self._fits([number, *axes, *forms[-1]]) or self._fits([number, *axes, *needed]):
                return [number, *axes, *forms[-1]]
        return [number, *forms[-1]]

    def _axes(self, most: int | None) -> list[Column]:
        """Give a column for each setting, its name cut to `most` columns."""
        return [
            Column(title, widest((values[i] for values in self._values), len(title[:most])), 0)
            for i, title in enumerate(self._titles)
        ]

    def _fits(self, columns: Sequence[Column]) -> bool:
        gap = 2 if self._width >= WIDE else 1
        return sum(column.width + gap for column in columns) - gap <= self._width


def widest(cells: Iterable[str], least: int) -> int:
    """Give the columns that the widest cell takes, and `least` at least."""
    return max([least, *map(cell_len, cells)])
