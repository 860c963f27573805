"""The line of a text that is not finished, in the rows of a screen."""

from __future__ import annotations

from collections.abc import Sequence

from .painting import Piece


class OpenLine:
    """The line that is not finished: its pieces, and its rows on a screen, wrapped once as it grows."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._columns = 0
        self._rows: list[list[Piece]] = [[]]
        self._used = 0  # columns of the last row
        self._num_placed = 0  # pieces that are in rows

    def add(self, piece: Piece) -> None:
        """Add text without a newline."""
        if piece.text:
            self.pieces.append(piece)

    def last_rows(self, columns: int, count: int) -> Sequence[Sequence[Piece]]:
        """Give the last `count` rows of the line, none wider than `columns` on any terminal."""
        if columns != self._columns:
            self._columns, self._rows, self._used, self._num_placed = columns, [[]], 0, 0
        for piece in self.pieces[self._num_placed :]:
            self._place(piece)
        self._num_placed = len(self.pieces)
        return self._rows[-count:]

    def _place(self, piece: Piece) -> None:
        start = ""  # of the piece, in the last row
        for char in piece.text:
            width = most_columns(char)
            if self._used + width > max(self._columns, 2):
                self._rows[-1].append(Piece(start, piece.style))
                self._rows.append([])
                start, self._used = "", 0
            start += " " * width if char == "\t" else char
            self._used += width
        self._rows[-1].append(Piece(start, piece.style))


def most_columns(char: str) -> int:
    """Give the most columns that any terminal gives a character; joined emoji are taken one by one."""
    from rich.cells import get_character_cell_size

    if char == "\t":
        return 4
    return 1 if "\ufe00" <= char <= "\ufe0f" else get_character_cell_size(char)
