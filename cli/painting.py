"""Pieces of text with their styles: on the way to a terminal, no colour runs on behind the end of a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.text import Text

_CLEAR_REST = "\x1b[K"
_TAB = 8


class Piece(NamedTuple):
    """Text that is safe to show, and its style in Rich's words; none where it is empty."""

    text: str
    style: str = ""


def text_of(pieces: Iterable[Piece]) -> Text:
    """Give pieces as one text, never as markup."""
    from rich.text import Text

    return Text.assemble(*pieces, no_wrap=True)


class Cursor:
    """Where a terminal stands in its row while text is written to it, as far as widths are known."""

    def __init__(self) -> None:
        self.column = 0

    def paints_beyond(self, text: str, columns: int) -> bool:
        """Move over `text`, and tell whether a background could colour the rest of the row behind it.

        A terminal that scrolls to go on in a new row fills that row with the background in use.
        """
        from rich.cells import get_character_cell_size

        has_wrapped = False
        for char in text:
            if char == "\t":
                self.column = min(self.column - self.column % _TAB + _TAB, columns - 1)
                continue
            width = get_character_cell_size(char)
            if self.column + width > columns:
                has_wrapped, self.column = True, 0
            self.column += width
        return has_wrapped and self.column < columns  # in a full row it would take the last character away


def ansi(pieces: Iterable[Piece], cursor: Cursor, columns: int | None) -> str:
    """Give pieces as text with colour codes, which end with each line. columns: None where there is no terminal."""
    from rich.color import ColorSystem
    from rich.style import Style

    written = []
    for text, style in pieces:
        first, *others = text.split("\n")
        for i, line in enumerate([first, *others]):
            if i:
                written.append("\n")
                cursor.column = 0
            if line:
                written.append(Style.parse(style).render(line, color_system=ColorSystem.EIGHT_BIT))
            if line and columns and cursor.paints_beyond(line, columns) and style:
                written.append(_CLEAR_REST)
    return "".join(written)


class FinishedLines:
    """Lines for a console, which the terminal wraps itself, so that they can be copied whole."""

    def __init__(self, lines: Sequence[Sequence[Piece]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        from rich.control import Control
        from rich.segment import ControlType, Segment

        for pieces in self._lines:
            text = text_of(pieces)
            text.expand_tabs(_TAB)
            yield from text.render(console)
            if Cursor().paints_beyond(text.plain, console.width) and any(piece.style for piece in pieces):
                yield Control((ControlType.ERASE_IN_LINE, 0)).segment
            yield Segment.line()
