"""The prompt: the argument, then files, then standard input, joined by a blank line.

Where the argument or a preset's template says {input}, the others stand there instead.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from ..generation.errors import PromptError, UsageError

MAX_BYTES = 32 * 2**20
PLACE = "{input}"
_STDIN = "-"
_STDIN_NAMES = frozenset((_STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"))
_BOM = b"\xef\xbb\xbf"


class Stdin(Protocol):
    """Standard input, as far as it is needed."""

    @property
    def buffer(self) -> BinaryIO: ...

    def isatty(self) -> bool: ...


class Reader:
    """Reads texts as UTF-8 and counts their bytes; together they may not pass `limit`."""

    def __init__(
        self,
        stdin: Stdin | None,
        *,
        note: Callable[[str], None] = lambda text: None,
        warn: Callable[[str], None] = lambda text: None,
        limit: int = MAX_BYTES,
        patience: float = 1.0,  # seconds of waiting before a note
    ) -> None:
        self._stdin, self._note, self._patience = stdin, note, patience
        self.warn = warn
        self._limit = self._left = limit
        self.has_read_stdin = False

    def argument(self, text: str, name: str) -> str:
        """Give a text of the command line, which the shell may have passed in any bytes."""
        raw = os.fsencode(text) if os.name == "posix" else text.encode("utf-8", "surrogatepass")
        self._count(len(raw), name)
        return _decoded(raw, name)

    def file(self, path: Path) -> str:
        """Give a file's text without its final newline."""
        if names_stdin(path):
            return self.stdin()
        try:
            with self._patience_for(f"waiting for {str(path)!r} to end."), path.open("rb") as stream:
                facts = os.fstat(stream.fileno())
                if stat.S_ISREG(facts.st_mode) and facts.st_size > self._left:
                    self._refuse(str(path), f"{facts.st_size:,} bytes")
                raw = stream.read(self._left + 1)
        except OSError as error:
            raise UsageError(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error
        return self._text(raw, str(path))

    def stdin(self) -> str:
        """Give the text of standard input without its final newline; say so when that takes a while."""
        if self.has_read_stdin:
            raise UsageError("Standard input can be read only once: give - in one place.")
        self.has_read_stdin = True
        if self._stdin is None:
            return ""
        waiting = "waiting for standard input to end; --no-stdin would leave it alone."
        if self._stdin.isatty():
            self._note("Type the prompt; Ctrl-D on a line of its own ends it.")
        try:
            with contextlib.nullcontext() if self._stdin.isatty() else self._patience_for(waiting):
                raw = self._stdin.buffer.read(self._left + 1)
        except OSError as error:
            raise UsageError(f"Standard input cannot be read: {error.strerror}.") from error
        return self._text(raw, "standard input")

    @contextlib.contextmanager
    def _patience_for(self, waiting: str) -> Iterator[None]:
        """Note what is waited for, once the work inside takes long."""
        timer = threading.Timer(self._patience, self._note, [waiting])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _text(self, raw: bytes, name: str) -> str:
        self._count(len(raw), name)
        text = _decoded(raw, name)
        return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")

    def _count(self, size: int, name: str) -> None:
        if size > self._left:
            self._refuse(name, f"more than {self._limit:,} bytes" if size > self._limit else f"{size:,} bytes or more")
        self._left -= size

    def _refuse(self, name: str, size: str) -> None:
        already = self._limit - self._left
        before = f" after {already:,} bytes from elsewhere" if already else ""
        raise PromptError(
            f"The input is too large: {name} has {size}{before}, and the limit is {self._limit:,} bytes "
            f"({self._limit // 2**20} MiB) in all."
        )


def _decoded(raw: bytes, name: str) -> str:
    start = len(_BOM) if raw.startswith(_BOM) else 0
    try:
        return raw[start:].decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start + start
        raise PromptError(
            f"The input must be UTF-8, and {name} has the byte 0x{raw[at]:02x} at offset {at}: "
            "convert it, for example with iconv -f LATIN1 -t UTF-8."
        ) from None


def read_prompt(
    reader: Reader,
    argument: str | None,
    files: Sequence[Path],
    *,
    use_stdin: bool = True,
    is_stdin_terminal: bool = False,
    command: str = "run",
    noun: str = "prompt",
) -> str:
    """Read and join what the user gave. Raises PromptError where nothing was given, or not UTF-8, or too much.

    command, noun: whose text it is and what that is called, for the words of an error.
    """
    names = [argument, *(_STDIN if names_stdin(path) else str(path) for path in files)]
    if names.count(_STDIN) > 1:
        raise UsageError(f"Standard input can be read only once: give - for {noun.upper()} or for one --file.")
    if _STDIN in names and not use_stdin:
        raise UsageError("- reads standard input, and --no-stdin forbids it: give one of them.")
    is_free = use_stdin and _STDIN not in names and not reader.has_read_stdin
    is_last = is_free and (not is_stdin_terminal or (argument is None and not files))
    head = reader.stdin() if argument == _STDIN else reader.argument(argument, f"the {noun}") if argument else ""
    parts = [reader.file(path) for path in files]
    parts += [reader.stdin()] if is_last else []
    typed = head if argument != _STDIN else None
    if typed is not None and PLACE in typed and not any(parts):
        reader.warn(f"warning: {PLACE} in the {noun} stays as it is: neither --file nor standard input gave a text.")
    text = _joined(typed, head, parts)
    if not text and argument not in (None, _STDIN):
        raise PromptError(f"The {noun} is empty.")
    if not text:
        raise PromptError(
            f'There is no {noun}: give one as an argument (minigen {command} "..."), with --file, or on standard input.'
        )
    return text


def _joined(typed: str | None, head: str, parts: Sequence[str]) -> str:
    """Join the texts; `typed`, the argument, may hold the place for the others. An inserted text is never searched."""
    others = "\n\n".join(part for part in parts if part)
    if typed is not None and PLACE in typed and others:
        return typed.replace(PLACE, others, 1)
    return "\n\n".join(text for text in (head, others) if text)


def names_stdin(path: Path) -> bool:
    """Whether a path means standard input, which is read where it stands: opened anew, a file would begin again."""
    return str(path) in _STDIN_NAMES


def standard_input() -> Stdin | None:
    """Give standard input, or None where the program was started without one."""
    if sys.stdin is None or sys.stdin.closed:
        return None
    return sys.stdin
