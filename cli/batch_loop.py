"""The loop of a batch: lines are read as the engine has room, and records written as requests end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .batch_earlier import Done
from .batch_encoding import LineEncoder
from .batch_in_hand import InHand, Steps
from .batch_input import Line, LineReader
from .batch_order import Order, Record
from .batch_output import Records
from .batch_progress import BatchProgress
from .batch_requests import Form, is_blank
from .interrupts import Interrupts

FEED: Final = 2  # requests in the engine for each that can run: some wait, so that none is waited for
_LINES: Final = 64  # read between two steps at most, so that a stretch of bad lines holds nobody up
_GLANCE: Final = 0.2  # seconds for which a line is waited for before a signal is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What the loop works with."""

    lines: LineReader
    form: Form
    done: Done  # of an earlier run
    encoder: LineEncoder
    order: Order
    records: Records
    run: Mapping[str, Any]  # what stands in every record


class Batch:
    """Generates for every line that is not done. A line that fails does not keep the others from coming."""

    def __init__(self, engine: Steps, plan: BatchPlan, progress: BatchProgress, interrupts: Interrupts) -> None:
        self._engine, self._plan, self._progress, self._interrupts = engine, plan, progress, interrupts
        self._in_hand: InHand[int] = InHand(engine, plan.encoder, plan.run)

    def run(self) -> int:
        """Generate, and give the exit code: 0, 1 where a line failed, 130, 143 or 129 after a signal.

        At a signal what has finished is written, and what is being generated is left for another time.
        """
        with self._interrupts.deferred():
            while self._interrupts.exit_code is None and self._advance():
                self._progress.show()
            self._write(*self._plan.order.rest())
        if self._interrupts.exit_code is not None:
            return self._interrupts.exit_code
        self._plan.done.check_end(self._plan.lines.num_lines)
        return 1 if self._progress.num_failed else 0

    def _advance(self) -> bool:
        """Read what there is room for, and make one step; tell whether there is more to do."""
        self._read()
        self._progress.num_running = min(len(self._in_hand), self._engine.max_running)
        if not len(self._in_hand):
            return not self._plan.lines.has_ended
        for place, record in self._in_hand.step():
            self._write(*self._plan.order.finish(place, record))
        self._progress.num_tokens = self._in_hand.num_tokens
        return True

    def _read(self) -> None:
        most = FEED * self._engine.max_running
        for _ in range(_LINES):
            if len(self._in_hand) >= most or not self._plan.order.has_room():
                return
            is_idle = not len(self._in_hand)
            line = self._plan.lines.next(_GLANCE if is_idle else 0.0)
            if line is None:
                if is_idle and not self._plan.lines.has_ended:
                    self._progress.wait(self._plan.lines.name)
                return
            self._progress.go_on()
            if is_blank(line, self._plan.form):
                self._progress.num_blank += 1
            elif self._plan.done.holds(line):
                self._progress.num_before += 1
            else:
                self._begin(line)

    def _begin(self, line: Line) -> None:
        place = self._plan.order.begin()
        record = self._in_hand.begin(line, place)
        if record is not None:
            self._write(*self._plan.order.finish(place, record))

    def _write(self, *records: Record) -> None:
        for record in records:
            self._plan.records.write(record)
            self._progress.written(record)
