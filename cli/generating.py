"""The loop of a run: the engine is stepped, the view is fed, and a signal ends both in good order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ..generation.params import SamplingParams, next_seed
from ..generation.prompt import Prompt
from ..generation.stats import RunStats
from ..generation.trace import UNINSPECTED, Inspection, Output
from .interrupts import Interrupts
from .notes import Notes
from .samples import Sample
from .views import View


class Steps(Protocol):
    """The engine, as far as the loop knows it."""

    def add_request(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        inspection: Inspection = UNINSPECTED,
    ) -> str: ...

    def step(self) -> list[Output]: ...

    def has_unfinished_requests(self) -> bool: ...

    def abort_request(self, request_id: str) -> None: ...

    def seed_of(self, request_id: str) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the loop is to do."""

    prompt: Prompt
    params: SamplingParams
    num_samples: int = 1
    inspection: Inspection = UNINSPECTED
    does_keep_outputs: bool = False  # for documents that list their tokens
    load_seconds: float = 0.0


class Generation:
    """Generates the samples of a plan one after the other."""

    def __init__(
        self,
        engine: Steps,
        plan: Plan,
        view: View,
        notes: Notes,
        interrupts: Interrupts,
        *,
        clock: Callable[[], float] = time.perf_counter,
        report: Callable[[Sample], None] = lambda sample: None,
        start: Callable[[int], None] = lambda seed: None,
    ) -> None:
        self._engine, self._plan, self._view, self._notes = engine, plan, view, notes
        self._interrupts, self._clock, self._report, self._start = interrupts, clock, report, start

    def run(self) -> int:
        """Generate, and give the exit code: 0, 1 after an error, 130 or 143 after a signal.

        A sample that fails does not keep the others from coming.
        The first sample's seed is given to `start`, each sample that has ended to `report`.
        """
        seed, code = self._plan.params.seed, 0
        try:
            with self._interrupts.deferred():
                for index in range(self._plan.num_samples):
                    sample = self._sample(index, seed)
                    seed = seed if seed is not None else sample.seed
                    code = max(code, self._exit_code(sample))
                    if self._interrupts.exit_code is not None:
                        break
        finally:
            self._notes.clear()
            self._view.close()
        return code

    def _exit_code(self, sample: Sample) -> int:
        if sample.error is not None:
            self._notes.warn(str(sample.error))
            return 1
        code = self._interrupts.exit_code or 0
        if code:
            self._notes.note("interrupted; the text so far is kept." if code == 130 else "terminated.")
        return code

    def _sample(self, index: int, seed: int | None) -> Sample:
        plan = self._plan
        wanted = None if seed is None else next_seed(seed, index)
        request_id = self._engine.add_request(
            plan.prompt, replace(plan.params, seed=wanted), inspection=plan.inspection
        )
        sample = Sample(
            index=index,
            seed=self._engine.seed_of(request_id),
            stats=RunStats(load_seconds=plan.load_seconds, clock=self._clock),
            does_keep_outputs=plan.does_keep_outputs,
        )
        if index == 0:
            self._start(sample.seed)
        sample.stats.begin(len(plan.prompt.ids))
        self._view.begin(index)
        self._follow(request_id, sample)
        self._notes.clear()
        self._view.end(sample)
        self._report(sample)
        return sample

    def _follow(self, request_id: str, sample: Sample) -> None:
        """Step until the request has ended; at a signal it is aborted, and its last output taken."""
        is_aborted = False
        while self._engine.has_unfinished_requests():
            if self._interrupts.exit_code is not None and not is_aborted:
                self._engine.abort_request(request_id)
                is_aborted = True
            for output in self._engine.step():
                self._notes.clear()
                sample.take(output)
                self._view.show(output)
