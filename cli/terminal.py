"""Which stream may be coloured, and which may be redrawn.

Colour, the first that decides: `--color always|never`, NO_COLOR, FORCE_COLOR or CLICOLOR_FORCE, CLICOLOR=0,
TERM=dumb, and last whether the stream is a terminal. Redrawing needs a terminal whose cursor can move; no
variable forces it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

_MOST_COLUMNS = 10_000
ColorChoice = Literal["auto", "always", "never"]


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is an open terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def may_color(stream: IO[str] | None, choice: ColorChoice, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether colour codes may be written to `stream`."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE"):
        return True
    if environ.get("CLICOLOR") == "0" or environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def may_redraw(stream: IO[str] | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the cursor may be moved on `stream`."""
    return is_terminal(stream) and environ.get("TERM") != "dumb"


def has_256_colors(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a terminal that takes colour codes has 256 colours rather than 16."""
    return environ.get("COLORTERM") in ("truecolor", "24bit") or "256color" in environ.get("TERM", "")


def width_of(stream: IO[str], environ: Mapping[str, str] = os.environ) -> int:
    """Give the columns of a terminal, else those that COLUMNS names (0 names none), else 80."""
    if is_terminal(stream):
        return size_of(stream)[0]
    return min(_number(environ.get("COLUMNS", "")), _MOST_COLUMNS) or 80


def _number(text: str) -> int:
    """Give the number that a variable holds, 0 where it holds none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 100 else 0


def size_of(terminal: IO[str]) -> tuple[int, int]:
    """Give the columns and rows of a terminal as they are now; 80 × 24 where it does not say."""
    try:
        columns, rows = os.get_terminal_size(terminal.fileno())
    except (OSError, ValueError):
        columns, rows = 0, 0
    return columns or 80, rows or 24


def console_for(stream: IO[str], choice: ColorChoice) -> Console:
    """Give a Rich console that takes nothing from the environment and treats text as text."""
    from rich.console import Console

    is_colored = may_color(stream, choice)
    return Console(
        file=stream,
        width=width_of(stream),
        force_terminal=is_colored or may_redraw(stream),
        color_system=("256" if has_256_colors() else "standard") if is_colored else None,
        no_color=not is_colored,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )


def dress_help(arguments: Sequence[str]) -> None:
    """Let Typer's own help follow the same rule for colour."""
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):  # Typer and Rich take them for numbers
        if not _number(os.environ.get(name, "")):
            os.environ.pop(name, None)
    import typer.rich_utils

    typer.rich_utils.MAX_WIDTH = width_of(sys.stdout)
    is_colored = may_color(sys.stdout, _color_choice(arguments))
    typer.rich_utils.COLOR_SYSTEM = "standard" if is_colored else None
    typer.rich_utils.FORCE_TERMINAL = is_colored


def _color_choice(arguments: Sequence[str]) -> ColorChoice:
    """Find `--color` in a command line that is not parsed yet."""
    pairs = [*pairwise(arguments), *(tuple(a.split("=", 1)) for a in arguments if "=" in a)]
    words: dict[str, ColorChoice] = {"always": "always", "never": "never"}
    return next((words[value] for name, value in pairs if name == "--color" and value in words), "auto")
