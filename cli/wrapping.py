"""A text that grows, in rows of a screen that are broken between words."""

from __future__ import annotations

from .open_line import most_columns


class GrowingText:
    """A text and its rows, wrapped once as it grows: only the last row is wrapped again."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._num_placed = 0  # pieces that are in rows
        self._columns = 0
        self._rows = [""]

    def add(self, text: str) -> None:
        """Add text that is safe to show."""
        if text:
            self._pieces.append(text)

    def last_rows(self, columns: int, count: int) -> list[str]:
        """Give the last `count` rows, at least one, none wider than `columns` on any terminal."""
        columns = max(columns, 2)
        if columns != self._columns:
            self._columns, self._rows, self._num_placed = columns, [""], 0
        for line in _lines("".join(self._pieces[self._num_placed :])):
            self._rows += wrapped(self._rows.pop() + line, columns)
            self._rows.append("")
        self._rows.pop()
        self._num_placed = len(self._pieces)
        return [row.rstrip(" ") for row in self._rows[-max(count, 1) :]]


def _lines(text: str) -> list[str]:
    return text.replace("\t", "    ").split("\n")


def wrapped(line: str, columns: int) -> list[str]:
    """Give a line without tabs in rows of at most `columns`, which is at least 2.

    It is broken after spaces, which stay at the end of their row and may stand out, and beside wide characters;
    a word that is longer than a row, anywhere.
    """
    rows, start, used, place = list[str](), 0, 0, 0  # place: where the row can be broken
    for i, char in enumerate(line):
        width = most_columns(char)
        if width > 1:
            place = i
        if used + width > columns and char != " ":
            cut = place if place > start else i
            rows.append(line[start:cut])
            start, used = cut, sum(map(most_columns, line[cut:i]))
        used += width
        if char == " " or width > 1 or (width == 0 and place == i):
            place = i + 1
    return [*rows, line[start:]]
