"""The records that arrive from a cluster: checked against those of other workers and of an earlier run, and written."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from ..generation.errors import UsageError
from .batch_earlier import check_same, difference
from .batch_parcels import Answers, WorkerFacts
from .batch_progress import BatchProgress
from .batch_work import Work

_PATIENCE: Final = 60.0  # seconds without a record before a note


class Arrivals:
    """Writes records. Nothing of the output changes before the first worker is known to belong to the batch."""

    def __init__(self, work: Work, progress: BatchProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._work, self._progress, self._clock = work, progress, clock
        self._waits_since: float | None = None
        self._has_noted = False
        self._facts: WorkerFacts | None = None  # of the worker that answered first
        self._said: set[str] = set()

    @property
    def has_begun(self) -> bool:
        """Whether a record has come."""
        return self._facts is not None

    def wait(self) -> None:
        """Say once that the first record is waited for, when that takes a while."""
        now = self._clock()
        self._waits_since = now if self._waits_since is None else self._waits_since
        if not self._has_noted and now - self._waits_since >= _PATIENCE:
            self._has_noted = True
            self._work.notes.note("waiting for the workers, which load the model, or for room on the cluster.")

    def write(self, answers: Answers) -> None:
        """Write the records of a parcel. Raises UsageError where its worker cannot belong to this batch."""
        self._meet(answers.facts)
        for record in answers.records:
            self._work.records.write(record)
            self._progress.num_tokens += record["usage"]["completion_tokens"]
            self._progress.written(record)

    def begin(self) -> None:
        """Begin the output where no record has come, because there was nothing to do."""
        if self._facts is None:
            self._work.records.begin()

    def _meet(self, facts: WorkerFacts) -> None:
        work, here = self._work, version("minigen-cli")
        if facts.version != here:
            raise UsageError(f"A worker has minigen {facts.version}, and this machine has {here}: install the same.")
        if self._facts is None:
            check_same(work.records.earlier, facts.run)
            work.records.begin()
            self._facts = facts
            if work.given.shared.verbose:
                work.notes.plain(facts.choices)
        elif self._facts.run != facts.run:
            raise UsageError(
                f"The workers of the cluster do not agree: {difference(self._facts.run, facts.run)}. "
                "Give --dtype, let every machine have the same model files, and for --weights int8 its compiled step."
            )
        for say, texts in ((work.notes.warn, facts.warnings), (work.notes.note, facts.notes)):
            for text in texts:
                if text not in self._said:
                    say(text)
                self._said.add(text)
