"""The live table of a sweep, which is redrawn while the texts are written and goes when they are there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .sweep_texts import Board
from .terminal import size_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

REDRAW_SECONDS = 0.1


class HiddenView:
    """Shows nothing: where there is no terminal, or nothing is to be said."""

    def show(self, board: Board) -> None:
        """There is nowhere to show it."""

    def close(self) -> None:
        """There is nothing to put in order."""


class LiveTable:
    """Redraws a line for each combination: how many of its texts have ended, and the words that it is at."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._live: Live | None = None
        self._began = clock()
        self._drawn_at = float("-inf")

    def show(self, board: Board) -> None:
        """Redraw, if the last time is long enough ago."""
        if self._clock() - self._drawn_at < REDRAW_SECONDS:
            return
        from rich.console import Group

        from .sweep_tables import progress_lines

        columns, rows = size_of(self._console.file)
        self._console.size = columns, rows  # Rich would ask the environment first
        summary = progress_text(board, self._clock() - self._began)
        lines = progress_lines(board, summary, max(columns - 1, 1), max(rows - 1, 1))
        self._started().update(Group(*lines), refresh=True)
        self._drawn_at = self._clock()

    def close(self) -> None:
        """Take the table away."""
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None

    def _started(self) -> Live:
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
        return self._live


def progress_text(board: Board, seconds: float) -> str:
    """Say how far all texts are together: `3 of 24 texts · 345 tokens · 6.1 s · 56.7 tok/s`."""
    texts = board.in_turn
    num_ended = sum(text.finish_reason is not None for text in texts)
    return f"{num_ended:,} of {len(texts):,} texts · {speed_text(board, seconds)}"


def speed_text(board: Board, seconds: float) -> str:
    """Say how much was written in how long: `345 tokens · 6.1 s · 56.7 tok/s`."""
    num_tokens = sum(len(text.token_ids) for text in board.in_turn)
    return f"{num_tokens:,} tokens · {seconds:.1f} s · {num_tokens / max(seconds, 1e-9):.1f} tok/s"
