"""The lines that one engine has in hand: begun, advanced together, and turned into records as they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from ..generation.errors import MinigenError
from ..generation.params import SamplingParams
from ..generation.prompt import Prompt
from ..generation.trace import UNMEASURED, Inspection, Output
from .batch_encoding import LineEncoder, Refusal
from .batch_input import Line
from .batch_order import Record
from .batch_records import Answering, finished_record, refused_record

Place = TypeVar("Place")


class Steps(Protocol):
    """The engine, as far as a batch knows it."""

    max_running: int

    def add_request(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        inspection: Inspection = ...,
    ) -> str: ...

    def step(self) -> list[Output]: ...

    def has_unfinished_requests(self) -> bool: ...


class InHand(Generic[Place]):
    """Begins lines, each at a place that its caller knows it by, and gives their records. For one thread at a time.

    run: what stands in every record.
    """

    def __init__(self, engine: Steps, encoder: LineEncoder, run: Mapping[str, Any]) -> None:
        self._engine, self._encoder, self._run = engine, encoder, run
        self._answering: dict[str, tuple[Place, Answering]] = {}  # by the id of their request
        self._names = 0
        self.num_tokens = 0  # of all lines so far

    def __len__(self) -> int:
        """The number of lines that have not ended."""
        return len(self._answering)

    def begin(self, line: Line, place: Place) -> Record | None:
        """Begin a line; give its record where nothing can be generated for it."""
        request = self._encoder.request(line)
        if not isinstance(request, Refusal):
            self._names += 1  # not the line's number: a cluster may give a line twice
            try:
                name = self._engine.add_request(request.prompt, request.params, str(self._names), inspection=UNMEASURED)
                self._answering[name] = place, Answering(request=request)
                return None
            except MinigenError as error:
                request = Refusal(line=request.line, digest=request.digest, id=request.id, error=error)
        return refused_record(request, self._run)

    def step(self) -> list[tuple[Place, Record]]:
        """Make one step of the engine, where it has something to do; give the records of the lines that ended in it."""
        if not self._engine.has_unfinished_requests():
            return []
        return [ended for output in self._engine.step() for ended in self._taken(output)]

    def _taken(self, output: Output) -> list[tuple[Place, Record]]:
        place, one = self._answering[output.request_id]
        one.take(output)
        self.num_tokens += output.token_id is not None
        if output.finish_reason is None:
            return []
        del self._answering[output.request_id]
        return [(place, finished_record(one, output, self._run))]
