"""Where the records of a batch go: a stream, or a file that is locked, appended to and can be continued."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

from ..generation.errors import RunError, UsageError
from .batch_earlier import Earlier, read_earlier
from .batch_locks import lock, opened_alone
from .batch_rewriting import in_order, without_failed
from .destination import Destination, is_standard_output
from .json_line import is_unicode, line_of

SYNC_SECONDS: Final = 5.0  # a power cut costs the records of that time at most


class Records(Protocol):
    """Takes records, in a context. Each is on its way when `write` returns."""

    @property
    def earlier(self) -> Earlier:
        """What an earlier run has left."""

    @property
    def is_file(self) -> bool:
        """Whether a later run can go on with it."""

    def __enter__(self) -> Records: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self) -> None:
        """Make room for the first record: from here on the output changes."""

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record."""

    def put_in_order(self) -> None:
        """Bring the records into the order of their lines, where they are not."""


class RecordStream:
    """Records on standard output, a device or a pipe."""

    def __init__(self, path: Path | None, clear: Callable[[], None]) -> None:
        self._destination, self._clear = Destination(path), clear
        self._is_ascii = not is_unicode(self._destination.stream)
        self.earlier = Earlier(name="")  # nothing can be known of it
        self.is_file = False

    def __enter__(self) -> RecordStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._destination.__exit__(kind, error, trace)

    def begin(self) -> None:
        """There is nothing to make room for."""

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record and send it on its way."""
        if self._destination.is_terminal:
            self._clear()
        self._destination.stream.write(line_of(record, is_ascii=self._is_ascii) + "\n")
        self._destination.stream.flush()

    def put_in_order(self) -> None:
        """There is nothing to bring in order: what was written is gone."""


class RecordFile:
    """Records in a file of its own. One write is one record, so that a kill tears the last one at most.

    earlier: what it holds, where it is to be continued. Raises UsageError for a file that cannot be written, that
    another process writes, and that holds something where it is neither continued nor overwritten; RunError where
    the disk is full: what was written before stays whole.
    """

    def __init__(self, path: Path, *, does_resume: bool, does_overwrite: bool) -> None:
        self.name, self.is_file = f"--output {str(path)!r}", True
        self._path = Path(os.path.realpath(path))  # a link stays a link
        self._is_new = not self._path.exists()
        self._has_begun = self._is_unordered = False
        self._last_line = 0
        self._descriptor = opened_alone(self._path, self.name)
        self._synced = time.monotonic()
        is_read = False
        try:
            self._size = os.fstat(self._descriptor).st_size
            if self._size and not does_resume and not does_overwrite:
                raise UsageError(
                    f"{self.name} holds something already: --resume continues it, --overwrite begins anew."
                )
            self.earlier = read_earlier(self._path, self.name) if does_resume else Earlier(name=self.name)
            is_read = True
        finally:
            if not is_read:
                self._close()

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # a device that cannot
            os.fsync(self._descriptor)
        self._close()

    def begin(self) -> None:
        """Take failed records and a torn end out of the file; all of it, where it is not continued."""
        self._has_begun = True
        earlier = self.earlier
        with self._failures():
            if earlier.failed:
                self._replace(without_failed(self._path, earlier, self._lock))
            elif earlier.end < self._size:
                os.ftruncate(self._descriptor, earlier.end)
            self._size = os.fstat(self._descriptor).st_size
            if earlier.lacks_newline and list(earlier.failed[-1:]) != [earlier.end]:
                self._append(b"\n")
        self._last_line = earlier.last_line
        self._is_unordered = not earlier.is_ascending

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record; now and then, see to it that the disk has what was written."""
        self._is_unordered |= record["line"] < self._last_line
        self._last_line = record["line"]
        with self._failures():
            self._append((line_of(record) + "\n").encode())
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._descriptor)
                self._synced = time.monotonic()

    def put_in_order(self) -> None:
        """Bring the records into the order of their lines, where a continued run wrote some late."""
        if self._is_unordered:
            with self._failures():
                self._replace(in_order(self._path, self.name, self._lock))

    def _append(self, data: bytes) -> None:
        """Write at the end, all or nothing."""
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def _replace(self, descriptor: int) -> None:
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _lock(self, descriptor: int) -> None:
        lock(descriptor, self.name)

    def _close(self) -> None:
        if self._is_new and not self._has_begun:
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Say of what fails inside that this file could not be written."""
        try:
            yield
        except OSError as error:
            raise RunError(f"{self.name} could not be written: {error.strerror}.") from error


def open_records(path: Path | None, *, does_resume: bool, does_overwrite: bool, clear: Callable[[], None]) -> Records:
    """Open the output; None and `-` are standard output. clear: called before anything is written to a terminal.

    Raises UsageError for one that cannot be written, or cannot be continued.
    """
    if path is not None and not is_standard_output(path) and (os.path.isfile(path) or not os.path.exists(path)):
        return RecordFile(path, does_resume=does_resume, does_overwrite=does_overwrite)
    if does_resume:
        raise UsageError("--resume needs --output with a file, which it continues.")
    return RecordStream(path, clear)
