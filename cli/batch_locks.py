"""Opening a file for one writer: a second process that means the same file is refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..generation.errors import UsageError


def opened_alone(path: Path, name: str) -> int:
    """Open a file to read it and append to it, made where it is missing, and lock it. Give its descriptor.

    Raises UsageError where it cannot be written, and where another process has it.
    """
    while True:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise UsageError(f"{name} cannot be written: {error.strerror}.") from error
        try:
            lock(descriptor, name)
        except UsageError:
            os.close(descriptor)
            raise
        if _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)  # another process has put a new file in its place before the lock


def lock(descriptor: int, name: str) -> None:
    """Lock an open file for this process, where the system can. Raises UsageError where another one has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{name} is being written by another process: wait for it, or give another file.") from None
    except OSError:  # a file system without locks
        return


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether a path still names an open file."""
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
