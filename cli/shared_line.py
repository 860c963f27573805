"""The line on which a text has stopped: a message that comes to the same place begins a new one.

A text may end without a newline, and a stream does not tell where it stands. So each stream is remembered while what
was written to it last is unfinished.
"""

from __future__ import annotations

import os
import stat
from typing import IO, Final
from weakref import WeakSet

from .terminal import is_terminal

_UNFINISHED: Final = WeakSet[IO[str]]()


def wrote(text: str, stream: IO[str]) -> None:
    """Remember whether what was written to a stream ends a line."""
    if text.endswith("\n"):
        _UNFINISHED.discard(stream)
    elif text:
        _UNFINISHED.add(stream)


def line_end(messages: IO[str]) -> str:
    r"""Give what a message needs before it, once: `"\n"` where a text has stopped on its line, else `""`."""
    met = [stream for stream in _UNFINISHED if _meet(stream, messages)]
    for stream in met:
        _UNFINISHED.discard(stream)
    return "\n" if met else ""


def _meet(text: IO[str], messages: IO[str]) -> bool:
    """Whether both come to one place: to one file or pipe, or to the terminal, to which a pipe's reader may write.

    A text that goes to a terminal itself ends its own last line.
    """
    try:
        where, there = os.fstat(text.fileno()), os.fstat(messages.fileno())
    except (OSError, ValueError):  # closed, or no real stream
        return False
    if is_terminal(text):
        return False
    return os.path.samestat(where, there) or (is_terminal(messages) and stat.S_ISFIFO(where.st_mode))
