"""What travels between a batch and the workers of a cluster: the plan, parcels of lines, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..generation.errors import MinigenError, RunError, UsageError
from .batch_earlier import Done, Earlier
from .batch_input import Line, LineReader
from .batch_order import Record
from .batch_plan import BatchFlags
from .batch_progress import BatchProgress
from .batch_requests import Form, is_blank
from .job import Job

CALLS: Final = 4  # parcels that share an engine at a time
_MOST_BYTES: Final = 2**22  # of the lines of a parcel, beside the last of them
_GLANCE: Final = 4096  # lines that are looked at before a signal is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What a cluster is to do, settled before any line travels."""

    given: BatchFlags
    job: Job
    seed: int  # of line 1
    earlier: Earlier  # the name of the output and the run it holds, not its lines
    folder: str  # for the files of a Ray that is started for this batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A cluster was reached."""

    device: str
    num_workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The first parcel is there: workers are wanted."""

    num_workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Lines that travel, and are answered, together."""

    number: int  # from 0
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        first, last = self.lines[0].number, self.lines[-1].number
        return f"line {first}" if first == last else f"lines {first} to {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """What a worker knows once its model is loaded."""

    run: Mapping[str, Any]  # what stands in its records
    version: str  # of minigen
    choices: str  # every setting with its origin
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The records of a parcel, in the order of its lines."""

    number: int  # of the parcel
    facts: WorkerFacts
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a cluster cannot go on, in one sentence."""

    text: str
    is_usage: bool = False

    @classmethod
    def of(cls, error: MinigenError) -> Failure:
        """Give what travels in the place of an error."""
        return cls(text=str(error), is_usage=isinstance(error, UsageError))

    def error(self) -> MinigenError:
        """Give the error to raise."""
        return UsageError(self.text) if self.is_usage else RunError(self.text)


Order = ClusterPlan | Begin | Parcel | None  # what goes to a cluster; None: no parcel follows
Message = Ready | Answers | Failure  # what comes back


class Packer:
    """Packs the lines that are not done, at most `num_lines` together. progress: counts those that are left out."""

    def __init__(self, lines: LineReader, form: Form, done: Done, progress: BatchProgress, num_lines: int) -> None:
        self._lines, self._form, self._done, self._progress, self._most = lines, form, done, progress, num_lines
        self._number = 0

    @property
    def has_ended(self) -> bool:
        """Whether every line was read."""
        return self._lines.has_ended

    @property
    def name(self) -> str:
        """What the input is called in messages."""
        return self._lines.name

    def check_end(self) -> None:
        """Raise UsageError where a line is done that the input does not have."""
        self._done.check_end(self._lines.num_lines)

    def next(self, patience: float) -> Parcel | None:
        """Give the next parcel: smaller, or none at all, where no more lines came within `patience` seconds.

        Raises UsageError where a line that is done has changed since.
        """
        packed: list[Line] = []
        num_bytes = 0
        for _ in range(_GLANCE):
            if len(packed) == self._most or num_bytes >= _MOST_BYTES:
                break
            line = self._lines.next(0.0 if packed else patience)
            if line is None:
                break
            if self._is_wanted(line):
                packed.append(line)
                num_bytes += len(line.raw)
        if not packed:
            return None
        self._number += 1
        return Parcel(number=self._number - 1, lines=tuple(packed))

    def _is_wanted(self, line: Line) -> bool:
        self._progress.go_on()
        if is_blank(line, self._form):
            self._progress.num_blank += 1
            return False
        is_done = self._done.holds(line)
        self._progress.num_before += is_done
        return not is_done
