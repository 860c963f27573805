"""What minigen says on standard error: one status line on a terminal, notes, warnings and errors."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

from .colors import may_redraw
from .shown import shown

_CLEAR_LINE = "\r\x1b[K"
_TOKEN_NAMES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}")


def say(text: str, stream: TextIO | None = None) -> None:
    """Write one line, with the program's name, control characters visible and secrets left out."""
    target = stream or sys.stderr
    if target is not None:  # a program can be started without standard error
        target.write(f"minigen: {shown(without_secrets(text))}\n")
        target.flush()


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
        self._stream.write(f"{_CLEAR_LINE if self._has_status else ''}{shown(text)}")
        self._stream.flush()
        self._has_status = True

    def clear(self) -> None:
        """Take the status line away."""
        if self._has_status:
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()
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
        self._stream.write(f"{shown(text)}\n")
        self._stream.flush()
