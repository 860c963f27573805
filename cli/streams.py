"""The standard streams at the start and at the end of a program: closed ones, full disks, readers that are gone."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from .notes import say
from .terminal import is_terminal


def flushed(code: int, failed: int) -> int:
    """Send what is left in the streams and give the exit code: `failed` in place of 0 where the disk refused.

    A reader that is gone is not a failure.
    """
    for stream in (sys.stderr, sys.stdout):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError as error:
            _silence(stream)
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                say(f"The output could not be written: {error.strerror}.")
                code = code or failed
    return code


def silence_output() -> None:
    """Lead standard output and standard error nowhere, where their reader may be gone."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not is_terminal(stream):
            _silence(stream)


def _silence(stream: TextIO) -> None:
    """Lead a stream nowhere, so that nothing is written to it when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):  # no real stream
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def hold_closed_descriptors() -> None:
    """Open what the program was started without, so that no other file becomes its standard error."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- for as long as the program runs
