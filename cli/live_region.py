"""The last rows of a terminal, redrawn in place and taken away again: what every live view draws on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .terminal import size_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

REDRAW_SECONDS = 0.1  # a view redraws no more often


class LiveRegion:
    """Redraws some rows of a console's terminal; what is printed on that console goes above them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def size(self) -> tuple[int, int]:
        """Give the terminal's columns and rows as they are now, and let the console draw for them."""
        columns, rows = size_of(self._console.file)
        self._console.size = columns, rows  # Rich would ask the environment first
        return columns, rows

    def draw(self, content: RenderableType) -> None:
        """Put content in the place of what is drawn; of what is higher than the terminal the end is cut off."""
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
        self._live.update(content, refresh=True)

    def clear(self) -> None:
        """Take away what is drawn."""
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None
