"""What minigen says on standard error: one status line on a terminal, notes, warnings and errors."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TextIO

from .escaping import shown
from .shared_line import line_end
from .terminal import may_redraw, size_of

_CLEAR_LINE = "\r\x1b[K"
_TOKEN_NAMES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}")


def say(text: str, stream: TextIO | None = None) -> None:
    """Write one line, with the program's name, control characters visible and secrets left out."""
    target = stream or sys.stderr
    if target is not None:  # a program can be started without standard error
        _send(target, f"{line_end(target)}minigen: {shown(without_secrets(text))}\n")


def _send(stream: TextIO, text: str) -> None:
    """Write at once. A message that cannot be delivered changes nothing about the work."""
    with contextlib.suppress(OSError):
        stream.write(text)
        stream.flush()


def without_secrets(text: str) -> str:
    """Give `text` without the hub's access tokens."""
    for name in _TOKEN_NAMES:
        secret = os.environ.get(name, "").strip()
        if len(secret) >= 4:
            text = text.replace(secret, "***")
    return _TOKEN.sub("hf_***", text)


class Notes:
    """Talks on one stream. Quiet hides status and notes, never warnings.

    It listens to the work of fetching and loading too, and clears its status line before that is shown.
    """

    def __init__(self, stream: TextIO, *, is_quiet: bool = False) -> None:
        self._stream, self._is_quiet = stream, is_quiet
        self._has_status = False

    def status(self, text: str) -> None:
        """Show what is going on now, on a terminal, until something else is shown."""
        if self._is_quiet or not may_redraw(self._stream):
            return
        from rich.cells import cell_len, set_cell_size

        line = set_cell_size(shown(text), min(cell_len(shown(text)), size_of(self._stream)[0] - 1))  # one row to clear
        _send(self._stream, f"{_CLEAR_LINE if self._has_status else ''}{line}")
        self._has_status = True

    def clear(self) -> None:
        """Take the status line away."""
        if self._has_status:
            _send(self._stream, _CLEAR_LINE)
            self._has_status = False

    def note(self, text: str) -> None:
        """Say something that can be left out."""
        if not self._is_quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Say something that matters."""
        self.clear()
        say(text, self._stream)

    def plain(self, text: str) -> None:
        """Write lines that were asked for."""
        self.clear()
        _send(self._stream, f"{line_end(self._stream)}{shown(text)}\n")
