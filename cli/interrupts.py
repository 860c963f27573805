"""Ctrl-C, SIGTERM and SIGHUP: the first signal ends the work in good order, the second ends the program at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
SHOW_CURSOR = "\x1b[?25h"


class Interruption(BaseException):
    """A signal that ends the program. It is not an Exception, so that nothing takes it for a failure."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)


class Interrupts:
    """Listens to SIGINT, SIGTERM and SIGHUP while it is entered.

    A signal raises Interruption; within `deferred()` the first one only sets `exit_code`, for a loop to see.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None  # 130, 143 or 129 once a signal came
        self._is_deferring = self._is_ending = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # only there can signals be handled
            for number in _SIGNALS:
                if signal.getsignal(number) == signal.SIG_IGN:  # as nohup and a shell's & want it
                    continue
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let the work inside come to its own end at the first signal."""
        self._is_deferring = True
        try:
            yield
        finally:
            self._is_deferring = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_first = self.exit_code is None
        self.exit_code = 128 + number
        if is_first and self._is_deferring:
            return
        if self._is_ending:
            _end_now(self.exit_code)
        self._is_ending = True
        raise Interruption(number)


def _end_now(exit_code: int) -> None:
    """End without any clean-up but the cursor's."""
    if sys.stdout is not None and sys.stdout.isatty():
        os.write(sys.stdout.fileno(), SHOW_CURSOR.encode())
    os._exit(exit_code)
