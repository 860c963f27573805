"""The loop of a run: the engine is stepped, the view is fed, and a signal ends both in good order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from ..generation.params import SamplingParams, next_seed
from ..generation.prompt import Prompt
from ..generation.stats import RunStats
from ..generation.trace import UNINSPECTED, Inspection, Output
from .in_order import InOrder
from .interrupts import Interrupts
from .notes import Notes
from .samples import Sample
from .views import Overview, View


class Steps(Protocol):
    """The engine, as far as the loop knows it."""

    @property
    def max_running(self) -> int: ...

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

    def num_cached(self, request_id: str) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the loop is to do."""

    prompt: Prompt
    params: SamplingParams
    num_samples: int = 1
    inspection: Inspection = UNINSPECTED
    does_show_draws: bool = True  # False: the view shows texts alone, or only whole samples
    does_keep_outputs: bool = False  # for documents that list their tokens
    load_seconds: float = 0.0


class Generation:
    """Generates the samples of a plan, as many together as the engine runs, and shows them in order.

    overview: shows all that run, besides the view; None where there is none.
    """

    def __init__(
        self,
        engine: Steps,
        plan: Plan,
        view: View,
        notes: Notes,
        interrupts: Interrupts,
        *,
        overview: Overview | None = None,
        clock: Callable[[], float] = time.perf_counter,
        report: Callable[[Sample], None] = lambda sample: None,
        start: Callable[[int], None] = lambda seed: None,
    ) -> None:
        self._engine, self._plan, self._view, self._notes = engine, plan, view, notes
        self._interrupts, self._clock, self._report, self._start = interrupts, clock, report, start
        self._overview = overview
        self._order = InOrder(view, does_show_draws=plan.does_show_draws)
        self._code = 0
        self.stats = RunStats(load_seconds=plan.load_seconds, clock=clock)  # of all samples together

    def run(self) -> int:
        """Generate, and give the exit code: 0, 1 after an error, 130, 143 or 129 after a signal.

        A sample that fails does not keep the others from coming.
        The first sample's seed is given to `start`, each sample that has ended to `report`, in order.
        """
        try:
            with self._interrupts.deferred():
                samples = self._added()
                self._start(next(iter(samples.values())).seed)
                self._order.begin()
                self._follow(samples)
                self._tell_signal()
        finally:
            self._notes.clear()
            self._view.close()
        return self._code

    def _added(self) -> dict[str, Sample]:
        """Add all requests; give the samples by the requests' ids, in order."""
        plan, seed, samples = self._plan, self._plan.params.seed, dict[str, Sample]()
        for index in range(plan.num_samples):
            wanted = None if seed is None else next_seed(seed, index)
            request_id = self._engine.add_request(
                plan.prompt, replace(plan.params, seed=wanted), inspection=plan.inspection
            )
            wanted = self._engine.seed_of(request_id) if wanted is None else wanted
            seed = wanted if seed is None else seed
            samples[request_id] = Sample(
                index=index,
                seed=wanted,
                stats=RunStats(load_seconds=plan.load_seconds, clock=self._clock),
                does_keep_outputs=plan.does_keep_outputs,
            )
        return samples

    def _follow(self, samples: dict[str, Sample]) -> None:
        """Step until all requests have ended; at a signal they are aborted, and their last outputs taken."""
        waiting, is_aborted = iter(list(samples.values())), False
        self.stats.begin(len(self._plan.prompt.ids))
        self._admit(waiting, self._engine.max_running)
        while self._engine.has_unfinished_requests():
            if self._interrupts.exit_code is not None and not is_aborted:
                self._abort(samples)
                is_aborted = True
            outputs = self._engine.step()
            if not outputs and samples:
                self._tell_reading(next(iter(samples)))
            for output in outputs:
                self._notes.clear()
                self._take(samples[output.request_id], output)
                if output.finish_reason is not None:
                    del samples[output.request_id]
                    self._admit(waiting, 1)
            if self._overview is not None:
                self._overview.redraw()

    def _admit(self, waiting: Iterator[Sample], count: int) -> None:
        """Start the clocks of the next samples: the engine has a place for them now."""
        for sample in islice(waiting, count):
            sample.stats.begin(len(self._plan.prompt.ids))

    def _tell_reading(self, request_id: str) -> None:
        """Say how far the prompt has been read."""
        num_read, num_tokens = self._engine.num_cached(request_id), len(self._plan.prompt.ids)
        if num_read < num_tokens:
            self._notes.status(f"reading the prompt ({num_read} of {num_tokens} tokens) ...")

    def _abort(self, samples: Mapping[str, Sample]) -> None:
        for request_id in samples:
            self._engine.abort_request(request_id)

    def _take(self, sample: Sample, output: Output) -> None:
        sample.take(output)
        if output.token_id is not None:
            self.stats.token()
        if self._overview is not None:
            self._overview.follow(sample, output)
        for ended in self._order.take(sample, output):
            self._tell(ended)

    def _tell(self, sample: Sample) -> None:
        """Report a sample whose turn is over."""
        self._report(sample)
        if sample.error is not None:
            self._notes.warn(f"{self._name(sample)}{sample.error}")
            self._code = max(self._code, 1)

    def _name(self, sample: Sample) -> str:
        """Name a sample before what is said about it, where there are several."""
        return "" if self._plan.num_samples == 1 else f"sample {sample.index + 1} of {self._plan.num_samples}: "

    def _tell_signal(self) -> None:
        code = self._interrupts.exit_code or 0
        if code:
            self._notes.note("interrupted; the text so far is kept." if code == 130 else "terminated.")
        self._code = max(self._code, code)
