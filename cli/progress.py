"""How fetching and loading show on standard error: a bar on a terminal, plain lines elsewhere, nothing under quiet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from .escaping import shown_in_cell
from .notes import say
from .terminal import console_for, may_redraw

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class TerminalProgress:
    """A listener to long work. One phase is open at a time; a new one takes its place."""

    def __init__(self, is_quiet: bool = False, stream: TextIO | None = None) -> None:
        self._is_quiet = is_quiet
        self._stream = stream if stream is not None else sys.stderr
        self._bar: Bar | None = None

    def note(self, text: str) -> None:
        """Say one line, above the bar if there is one."""
        if self._is_quiet or self._stream is None:
            return
        if self._bar is None:
            say(text, self._stream)
        else:
            from rich.text import Text

            self._bar.console.print(Text(f"minigen: {shown_in_cell(text)}"), soft_wrap=True)

    def start(self, label: str, total: int | None) -> None:
        """Open a phase. total: bytes, None when unknown."""
        self.finish()
        if self._is_quiet or self._stream is None:
            return
        if not may_redraw(self._stream):
            self.note(f"{label} ...")
            return
        self._bar = _bar(self._stream, has_total=total is not None)
        self._bar.add_task(shown_in_cell(label), total=total)
        self._bar.start()

    def advance(self, amount: int) -> None:
        """Count bytes of the open phase."""
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], amount)

    def finish(self) -> None:
        """Close the open phase, if there is one, and take its bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _bar(stream: TextIO, *, has_total: bool) -> Bar:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress as Bar,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    label = TextColumn("{task.description}", markup=False)
    columns: list[ProgressColumn] = [label, BarColumn(bar_width=24), TimeElapsedColumn()]
    if has_total:
        columns = [label, BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    return Bar(*columns, console=console_for(stream, "auto"), transient=True)
