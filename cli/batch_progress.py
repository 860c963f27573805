"""How a batch goes, on standard error: a bar on a terminal while it runs, a line and its failures at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from ..generation.progress import bytes_text
from ..generation.stats import peak_memory_bytes
from .notes import Notes
from .terminal import is_terminal, may_redraw, size_of

_EVERY: Final = 0.1  # seconds between two looks of the bar
_PATIENCE: Final = 1.0  # seconds of waiting for a line before a note
_LONGEST_BAR, _SHORTEST_BAR = 24, 6


class BatchProgress:
    """Counts what a batch does, and shows it.

    total: requests, those of an earlier run among them; None where the input was not counted. is_typed: the input
    comes from a terminal, on which a bar would be in the way.
    """

    def __init__(
        self,
        notes: Notes,
        stream: TextIO,  # that the notes go to
        total: int | None = None,
        *,
        is_typed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._notes, self._stream, self._total, self._clock = notes, stream, total, clock
        self._is_typed = is_typed
        self._began = self._shown = clock()
        self._idle_since: float | None = None
        self._has_noted = False
        self.num_before = self.num_blank = self.num_tokens = self.num_cut = 0
        self.num_written = self.num_failed = 0  # by this run
        self.num_running = 0
        self._first_failure = ""

    def written(self, record: Mapping[str, Any]) -> None:
        """Count a record that was written."""
        self.num_written += 1
        self.num_cut += "truncated" in record
        if "error" in record:
            self.num_failed += 1
            self._first_failure = self._first_failure or f"in line {record['line']}: {record['error']}"

    def wait(self, name: str) -> None:
        """Say once that the next line of an input is waited for, when that takes a while."""
        now = self._clock()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if not self._has_noted and not self._is_typed and now - self._idle_since >= _PATIENCE:
            self._has_noted = True
            self._notes.note(f"waiting for {name}.")

    def go_on(self) -> None:
        """Note that a line has come."""
        self._idle_since = None

    def show(self) -> None:
        """Draw the bar, where there is a terminal and the last one is a while ago."""
        now = self._clock()
        if now - self._shown >= _EVERY and not self._is_typed and may_redraw(self._stream):
            self._shown = now
            self._notes.status(self.bar(size_of(self._stream)[0] - 1))

    def bar(self, width: int) -> str:
        """Give the requests done, tokens per second and time left, with a bar where there is room."""
        done = self.num_before + self.num_written
        seconds = self._clock() - self._began
        speed = _speed(self.num_tokens, seconds)
        if self._total is None:
            return f"{done} done · {speed} · {_time(seconds)}"
        text = f"{done}/{self._total} · {speed}"
        if self.num_written and self._total >= done:
            half_done = self.num_running / 2  # what runs is half done on average
            left = max(0.0, self._total - done - half_done)
            text += f" · {_time(seconds / (self.num_written + half_done) * left)} left"
        length = min(_LONGEST_BAR, width - len(text) - 1)
        if length < _SHORTEST_BAR:
            return text
        full = min(length, length * done // max(1, self._total))
        return f"{'━' * full}{'╌' * (length - full)} {text}"

    def summary(self, device: str | None, seed: int, *, num_workers: int = 0) -> str:
        """Give the whole of it on one line. device: whose memory is told; num_workers: of a cluster, where it ran."""
        done = self.num_before + self.num_written
        seconds, peak = self._clock() - self._began, None if device is None else peak_memory_bytes(device)
        parts = [
            f"{done} requests" if self._total is None else f"{done} of {self._total} requests",
            f"{self.num_before} of them before" if self.num_before else None,
            f"{self.num_failed} failed" if self.num_failed else None,
            f"{self.num_tokens} tokens",
            _speed(self.num_tokens, seconds, "tokens/s"),
            f"peak {bytes_text(peak)}" if peak is not None else None,
            counted(num_workers, "worker") if num_workers else None,
            f"seed {seed}",
        ]
        return ", ".join(part for part in parts if part is not None)

    def end(self, device: str | None, seed: int, *, num_workers: int = 0, is_verbose: bool, is_quiet: bool) -> None:
        """Say how it went: the statistics where they are wanted, and failures always."""
        self._notes.clear()
        if is_verbose or (is_terminal(self._stream) and not is_quiet):
            self._notes.plain(self.summary(device, seed, num_workers=num_workers))
        if self.num_blank:
            self._notes.note(f"{_were(self.num_blank, 'empty line')} left out.")
        if self.num_cut:
            self._notes.warn(f"warning: {_were(self.num_cut, 'prompt')} cut to fit the window.")
        if self.num_failed:
            self._notes.warn(
                f"{self.num_failed} of {self.num_written} requests failed, the first {self._first_failure}"
            )


def counted(count: int, noun: str) -> str:
    """Write a number of things: `1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _were(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'was' if count == 1 else 'were'}"


def _speed(tokens: int, seconds: float, unit: str = "tok/s") -> str:
    rate = tokens / seconds if seconds > 0 else 0.0
    return f"{rate:.1f} {unit}" if rate < 1000 else f"{rate:.0f} {unit}"


def _time(seconds: float) -> str:
    """Write a length of time: `0:07`, `1:02:03`."""
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02}"
