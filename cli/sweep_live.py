"""The live table of a sweep, which is redrawn while the texts are written and goes when they are there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .live_region import REDRAW_SECONDS, LiveRegion
from .sweep_texts import Board

if TYPE_CHECKING:
    from rich.console import Console


class HiddenView:
    """Shows nothing: where there is no terminal, or nothing is to be said."""

    def show(self, board: Board) -> None:
        """There is nowhere to show it."""

    def close(self) -> None:
        """There is nothing to put in order."""


class LiveTable:
    """Redraws a line for each combination: how many of its texts have ended, and the words that it is at."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._region, self._clock = LiveRegion(console), clock
        self._began = clock()
        self._drawn_at = float("-inf")

    def show(self, board: Board) -> None:
        """Redraw, if the last time is long enough ago."""
        if self._clock() - self._drawn_at < REDRAW_SECONDS:
            return
        from rich.console import Group

        from .sweep_tables import progress_lines

        columns, rows = self._region.size()
        summary = progress_text(board, self._clock() - self._began)
        lines = progress_lines(board, summary, max(columns - 1, 1), max(rows - 1, 1))
        self._region.draw(Group(*lines))
        self._drawn_at = self._clock()

    def close(self) -> None:
        """Take the table away."""
        self._region.clear()


def progress_text(board: Board, seconds: float) -> str:
    """Say how far all texts are together: `3 of 24 texts · 345 tokens · 6.1 s · 56.7 tok/s`."""
    texts = board.in_turn
    num_ended = sum(text.finish_reason is not None for text in texts)
    return f"{num_ended:,} of {len(texts):,} texts · {speed_text(board, seconds)}"


def speed_text(board: Board, seconds: float) -> str:
    """Say how much was written in how long: `345 tokens · 6.1 s · 56.7 tok/s`."""
    return " · ".join([f"{_num_tokens(board):,} tokens", *speed(board, seconds)])


def speed(board: Board, seconds: float) -> list[str]:
    """Say how long it took, and how fast that was: `6.1 s`, `56.7 tok/s`."""
    return [f"{seconds:.1f} s", f"{_num_tokens(board) / max(seconds, 1e-9):.1f} tok/s"]


def _num_tokens(board: Board) -> int:
    return sum(len(text.token_ids) for text in board.in_turn)
