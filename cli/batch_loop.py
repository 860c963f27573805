"""The loop of a batch: lines are read as the engine has room, and records written as requests end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..generation.errors import MinigenError
from ..generation.params import SamplingParams
from ..generation.prompt import Prompt
from ..generation.trace import Output
from .batch_earlier import Done
from .batch_encoding import LineEncoder, Refusal, Request
from .batch_input import LineReader
from .batch_order import Order, Record
from .batch_output import Records
from .batch_progress import BatchProgress
from .batch_records import Answering, finished_record, refused_record
from .batch_requests import Form, is_blank
from .interrupts import Interrupts

FEED: Final = 2  # requests in the engine for each that can run: some wait, so that none is waited for
_LINES: Final = 64  # read between two steps at most, so that a stretch of bad lines holds nobody up
_GLANCE: Final = 0.2  # seconds for which a line is waited for before a signal is looked for


class Steps(Protocol):
    """The engine, as far as the loop knows it."""

    max_running: int

    def add_request(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, request_id: str | None = None
    ) -> str: ...

    def step(self) -> list[Output]: ...

    def has_unfinished_requests(self) -> bool: ...


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
        self._answering: dict[str, Answering] = {}  # by the id of their request

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
        self._progress.num_running = min(len(self._answering), self._engine.max_running)
        if self._engine.has_unfinished_requests():
            for output in self._engine.step():
                self._take(output)
            return True
        return not self._plan.lines.has_ended

    def _read(self) -> None:
        most = FEED * self._engine.max_running
        for _ in range(_LINES):
            if len(self._answering) >= most or not self._plan.order.has_room():
                return
            is_idle = not self._answering
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
                self._begin(self._plan.encoder.request(line))

    def _begin(self, request: Request | Refusal) -> None:
        place = self._plan.order.begin()
        if not isinstance(request, Refusal):
            try:
                name = self._engine.add_request(request.prompt, request.params, str(request.line))
                self._answering[name] = Answering(request=request, place=place)
                return
            except MinigenError as error:
                request = Refusal(line=request.line, digest=request.digest, id=request.id, error=error)
        self._write(*self._plan.order.finish(place, refused_record(request, self._plan.run)))

    def _take(self, output: Output) -> None:
        one = self._answering[output.request_id]
        one.take(output)
        self._progress.num_tokens += output.token_id is not None
        if output.finish_reason is not None:
            del self._answering[output.request_id]
            record = finished_record(one, output, self._plan.run)
            self._write(*self._plan.order.finish(one.place, record))

    def _write(self, *records: Record) -> None:
        for record in records:
            self._plan.records.write(record)
            self._progress.written(record)
