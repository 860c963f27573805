"""The lines of a batch: read as they are needed, numbered, and known again by a digest of their bytes."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

from ..generation.errors import RunError, UsageError
from .reading import MAX_BYTES, names_stdin, standard_input

_BOM: Final = b"\xef\xbb\xbf"
_CHUNK: Final = 2**16
DIGEST_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the input, without its line end."""

    number: int  # from 1; empty lines count
    raw: bytes  # of a line that is too long: nothing
    digest: str  # 16 hexadecimal digits, of its bytes
    num_bytes: int
    limit: int = MAX_BYTES  # bytes that a line may have

    @property
    def is_too_long(self) -> bool:
        """Whether it has more bytes than a line may have."""
        return self.num_bytes > self.limit


class LineReader:
    """Gives the lines of a stream one by one, and holds one of them at a time.

    name: what the stream is called in messages; limit: bytes of a line, beyond which only its digest is kept.
    """

    def __init__(self, stream: BinaryIO | io.RawIOBase, name: str, *, limit: int = MAX_BYTES) -> None:
        self._stream, self.name, self._limit = stream, name, limit
        self._buffer, self._searched = bytearray(), 0
        self._long = blake2b(digest_size=DIGEST_BYTES)  # what was let go of a line that is too long
        self._num_let_go = 0
        self._is_read = False
        self.num_lines = 0

    @property
    def has_ended(self) -> bool:
        """Whether every line was given."""
        return self._is_read and not self._buffer and not self._num_let_go

    def next(self, patience: float = 0.0) -> Line | None:
        """Give the next line; None at the end, and where none came within `patience` seconds.

        A file is always there, and so is what cannot be asked. Raises RunError where reading fails.
        """
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                return self._taken(end, end + 1)
            self._searched = len(self._buffer)
            if self._is_read:
                return None if self.has_ended else self._taken(len(self._buffer), len(self._buffer))
            if len(self._buffer) > self._limit + 1:  # one more for a carriage return
                self._let_go()
            if not self._is_ready(patience):
                return None
            self._read_on()

    def __iter__(self) -> Iterator[Line]:
        """Give every line, however long each is waited for."""
        while not self.has_ended:
            line = self.next(patience=1.0)
            if line is not None:
                yield line

    def close(self) -> None:
        """Close the stream, but one in memory, which is its owner's."""
        if isinstance(self._stream, io.FileIO):
            self._stream.close()

    def _taken(self, end: int, rest: int) -> Line:
        raw = bytes(self._buffer[:end])
        del self._buffer[:rest]
        self._searched = 0
        if self.num_lines == 0 and not self._num_let_go:
            raw = raw.removeprefix(_BOM)
        raw = raw.removesuffix(b"\r")
        self.num_lines += 1
        num_bytes = self._num_let_go + len(raw)
        self._long.update(raw)
        line = Line(
            number=self.num_lines,
            raw=raw if num_bytes <= self._limit else b"",
            digest=self._long.hexdigest(),
            num_bytes=num_bytes,
            limit=self._limit,
        )
        self._long, self._num_let_go = blake2b(digest_size=DIGEST_BYTES), 0
        return line

    def _let_go(self) -> None:
        self._long.update(self._buffer)
        self._num_let_go += len(self._buffer)
        self._buffer.clear()
        self._searched = 0

    def _read_on(self) -> None:
        try:
            chunk = self._stream.read(_CHUNK)
        except OSError as error:
            raise RunError(f"{self.name} could not be read any further: {error.strerror}.") from error
        self._is_read = chunk == b""  # None: nothing came, of a stream that does not wait
        self._buffer += chunk or b""

    def _is_ready(self, patience: float) -> bool:
        with contextlib.suppress(OSError, ValueError):  # no real file, or a system that can ask sockets alone
            return bool(select.select([self._stream.fileno()], [], [], patience)[0])
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Where the lines come from."""

    path: Path | None  # None: standard input
    name: str  # for messages
    is_file: bool  # a regular file, which can be read twice
    is_terminal: bool = False

    def open(self) -> LineReader:
        """Begin to read. Raises UsageError for a file that cannot be."""
        if self.path is None:
            return LineReader(_raw_stdin(), self.name)
        try:
            return LineReader(self.path.open("rb", buffering=0), self.name)
        except OSError as error:
            raise UsageError(f"{self.name} cannot be read: {error.strerror}.") from error


def input_at(path: Path) -> Input:
    """Give the input at a path; `-` is standard input. Raises UsageError for one that cannot be read."""
    if names_stdin(path):
        stdin = standard_input()
        if stdin is None:
            raise UsageError("Standard input is closed: give the requests as a file.")
        return Input(path=None, name="standard input", is_file=False, is_terminal=stdin.isatty())
    name = repr(str(path))
    try:
        facts = path.stat()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from error
    found = Input(path=path, name=name, is_file=stat.S_ISREG(facts.st_mode))
    if found.is_file or stat.S_ISDIR(facts.st_mode):
        found.open().close()  # a pipe can be opened only once
    return found


def _raw_stdin() -> BinaryIO | io.RawIOBase:
    """Give standard input without Python's buffer, which would wait for more than one line."""
    stdin = standard_input()
    assert stdin is not None
    try:
        return os.fdopen(os.dup(stdin.buffer.fileno()), "rb", buffering=0)
    except (OSError, ValueError):  # a stream in memory
        return stdin.buffer
