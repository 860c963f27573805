"""Where the text, the JSON or a trace goes: standard output, or a file that appears when it is whole."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

from ..generation.errors import RunError, UsageError
from .terminal import is_terminal

_STANDARD_OUTPUT: Final = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
_NO_ROOM: Final = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_DESCRIPTOR: Final = re.compile(r"(?:/dev/fd|/proc/self/fd)/(\d{1,9})")


class Destination:
    """A text stream in a context. A file is written aside and renamed at the end, if `keep` was called.

    flag: the option that names the file, for messages. Raises UsageError, before anything is generated, for a file
    that cannot be written, and RunError at the end where the disk is full: the file is then as it was.
    """

    def __init__(self, path: Path | None, flag: str = "--output") -> None:
        self._name = f"{flag} {str(path)!r}"
        self._path = None if path is None or is_standard_output(path) else path
        self._aside: Path | None = None
        self._is_kept = False
        self.stream = _standard_output() if self._path is None else self._opened(self._path)
        self.is_terminal = is_terminal(self.stream)

    def __enter__(self) -> Destination:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is None:
            return
        is_full = isinstance(error, OSError) and error.errno in _NO_ROOM
        try:
            self.stream.close()  # may find the disk full
            if isinstance(error, OSError) and is_full:  # it was found before
                raise error
            if self._aside is not None and self._is_kept:
                os.replace(self._aside, self._path)
        except BrokenPipeError:
            raise  # a reader that is gone is not a failure
        except OSError as failure:
            raise self.failure(failure) from failure
        finally:
            if self._aside is not None:
                self._aside.unlink(missing_ok=True)

    @property
    def is_file(self) -> bool:
        """Whether this is a file rather than standard output."""
        return self._path is not None

    def failure(self, error: OSError) -> RunError:
        """Give the error that says what kept this from being written."""
        return RunError(f"{self._name} could not be written: {error.strerror}.")

    def keep(self) -> None:
        """Let the file stand, as far as it is written, once the context ends."""
        self._is_kept = True

    def drop(self) -> None:
        """Leave the file as it was, and send what is still to be written nowhere."""
        self._is_kept = False
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)

    def _opened(self, path: Path) -> TextIO:
        try:
            if (descriptor := _descriptor(path)) is not None:
                return os.fdopen(os.dup(descriptor), "w", encoding="utf-8", newline="")
            facts = path.stat() if path.exists() else None
            if facts is not None and not stat.S_ISREG(facts.st_mode):
                return path.open("w", encoding="utf-8", newline="")  # a device or a pipe; a folder fails here
            self._path = target = Path(os.path.realpath(path))  # a link stays a link
            descriptor, name = tempfile.mkstemp(prefix=".minigen-", dir=target.parent)
            self._aside = Path(name)
            os.chmod(name, stat.S_IMODE(facts.st_mode) if facts else 0o666 & ~_umask())
            return os.fdopen(descriptor, "w", encoding="utf-8", newline="")
        except OSError as error:
            raise UsageError(f"{self._name} cannot be written: {error.strerror}.") from error


def is_standard_output(path: Path) -> bool:
    """Whether a path means standard output."""
    return str(path) in _STANDARD_OUTPUT


def _descriptor(path: Path) -> int | None:
    """Give the number of an open file that a path such as /dev/fd/63 names: the shell's `>(command)`."""
    if str(path) == "/dev/stderr":
        return 2
    found = _DESCRIPTOR.fullmatch(str(path))
    return int(found[1]) if found else None


def _standard_output() -> TextIO:
    """Give standard output, made so that no character stops it: a pipe takes UTF-8 unless told otherwise."""
    stream = sys.stdout
    if stream is None:
        raise UsageError("Standard output is closed; give a file with --output.")
    if isinstance(stream, io.TextIOWrapper):
        if is_terminal(stream) or os.environ.get("PYTHONIOENCODING"):
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8", errors="replace", newline="")
    return stream


def _umask() -> int:
    """Give the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
