"""A worker of a cluster: an engine of its own, which several parcels share, and an answer for each parcel.

Ray Data makes the workers, gives them parcels, and gives what a lost one had in hand to another. A parcel goes out in
one piece and comes back in one piece, so that a line that is done again is still written once.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from importlib.metadata import version
from io import StringIO
from typing import Any, Final

import ray

from ..generation.errors import MinigenError
from .batch_desk import Desk
from .batch_earlier import check_same
from .batch_encoding import LineEncoder
from .batch_engine import choices_text, open_engine
from .batch_parcels import Answers, ClusterPlan, Failure, Parcel, WorkerFacts
from .batch_pool import Pool
from .batch_records import run_facts
from .batch_source import row
from .notes import Notes

MOST_STARTS: Final = 4  # of a worker that is lost again and again before it has finished anything


class _Kept(Notes):
    """Keeps warnings, which are said where the batch was started, and drops everything else."""

    def __init__(self) -> None:
        super().__init__(StringIO(), is_quiet=True)
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)


class Worker:
    """Answers parcels: Ray Data makes one in each process of the pool, and calls it in several threads."""

    def __init__(self, plan: ClusterPlan, pool: Pool, foreman: Any) -> None:
        self._name, self._foreman = ray.get_runtime_context().get_actor_id(), foreman
        self._is_doomed = ray.get(foreman.start.remote(self._name)) > MOST_STARTS
        self._failure: Failure | None = None
        if self._is_doomed:
            return
        try:
            self._open(plan, pool)
        except MinigenError as error:
            self._failure = Failure.of(error)

    def __call__(self, table: Any) -> Any:
        """Answer the parcel of a row, in a row."""
        parcel: Parcel = pickle.loads(table["parcel"][0].as_py())
        return row("answers", pickle.dumps(self._answer(parcel)))

    def _answer(self, parcel: Parcel) -> Answers | Failure:
        if self._is_doomed:
            return Failure(
                text=f"A worker died {MOST_STARTS} times in a row, the last time with {parcel} in hand among others: "
                "its machine may lack memory, or a line or the model may be at fault."
            )
        if self._failure is not None:
            return self._failure
        answers = Answers(number=parcel.number, facts=self._facts, records=tuple(self._desk.answer(parcel.lines)))
        self._foreman.succeed.remote(self._name)
        return answers

    def _open(self, plan: ClusterPlan, pool: Pool) -> None:
        given, kept = plan.given, _Kept()
        given = replace(given, shared=replace(given.shared, threads=pool.threads))
        job = replace(plan.job, model=replace(plan.job.model, device=pool.device))
        opened = open_engine(given, job, kept)
        run = run_facts(job, opened.model, opened.settings, seed=plan.seed, form=given.form)
        check_same(plan.earlier, run)
        encoder = LineEncoder(job, opened.model, opened.settings, seed=plan.seed, form=given.form)
        self._desk = Desk(opened.engine, encoder, run)
        alone = opened.engine.one_at_a_time if given.max_running != 1 else None
        self._facts = WorkerFacts(
            run=run,
            version=version("minigen-cli"),
            choices=choices_text(opened, job, plan.seed),
            warnings=tuple(kept.warnings),
            notes=() if alone is None else (alone,),
        )
