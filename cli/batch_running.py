"""A batch from its flags to its exit code: input and output opened, then the work done here or on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from .batch_earlier import Done, check_same
from .batch_encoding import LineEncoder
from .batch_engine import Opened, choices_text, open_engine
from .batch_input import LineReader, input_at
from .batch_order import AsFinished, AsRead
from .batch_output import Records, open_records
from .batch_plan import BatchFlags, batch_job, check_apart, check_cluster, survey
from .batch_records import run_facts
from .batch_work import Work, ended, progress_of, seed_of, tell_typing
from .interrupts import Interrupts
from .notes import Notes
from .terminal import is_terminal
from .vocabulary import check_token_ids

if TYPE_CHECKING:
    from .batch_loop import BatchPlan

AHEAD: Final = 16  # --ordered: how many times as many lines as can run are read past the oldest unfinished one


def run_batch(given: BatchFlags, notes: Notes, interrupts: Interrupts) -> int:
    """Do a batch and give its exit code. Everything that needs no model is checked before one is loaded."""
    shared = given.shared
    job, source = batch_job(given, notes), input_at(given.source)
    check_cluster(given, job)
    check_apart(source, shared.output)
    check_token_ids(job)
    with open_records(
        shared.output, does_resume=given.resume, does_overwrite=given.overwrite, clear=notes.clear
    ) as records:
        total = None
        if source.is_file and (given.resume or given.ray is not None or _has_statistics(given)):
            notes.status("counting the requests ...")
            counts = survey(source, given.form, records.earlier)
            if given.resume and counts.num_left == 0:
                return _nothing_left(given, counts.num_requests, records, notes)
            total = counts.num_requests
        work = Work(given=given, job=job, source=source, records=records, total=total, notes=notes)
        return _generate(work, interrupts) if given.ray is None else _generate_on_cluster(work, interrupts)


def _has_statistics(given: BatchFlags) -> bool:
    return given.shared.verbose or (is_terminal(sys.stderr) and not given.shared.quiet)


def _nothing_left(given: BatchFlags, num_requests: int, records: Records, notes: Notes) -> int:
    records.begin()
    if given.ordered:
        records.put_in_order()
    notes.note(f"nothing is left to do: the output has all of the {num_requests} requests.")
    return 0


def _generate_on_cluster(work: Work, interrupts: Interrupts) -> int:
    from .batch_cluster import generate_on_cluster

    return generate_on_cluster(work, interrupts)


def _generate(work: Work, interrupts: Interrupts) -> int:
    from .batch_loop import Batch
    from .reporting import graphs_note

    given, records = work.given, work.records
    opened = open_engine(given, work.job, work.notes)
    seed = seed_of(opened.settings, records)
    run = run_facts(work.job, opened.model, opened.settings, seed=seed, form=given.form)
    check_same(records.earlier, run)
    _tell(work, opened, seed)
    with closing(work.source.open()) as lines:
        records.begin()
        progress = progress_of(work)
        encoder = LineEncoder(work.job, opened.model, opened.settings, seed=seed, form=given.form)
        code = Batch(opened.engine, _plan(work, opened, encoder, lines, run), progress, interrupts).run()
    if given.shared.verbose and opened.engine.graph_failure is not None:
        work.notes.note(graphs_note(opened.engine.graph_failure))
    return ended(work, progress, code, seed, device=opened.model.device)


def _plan(work: Work, opened: Opened, encoder: LineEncoder, lines: LineReader, run: Mapping[str, Any]) -> BatchPlan:
    from .batch_loop import BatchPlan

    return BatchPlan(
        lines=lines,
        form=work.given.form,
        done=Done(work.records.earlier),
        encoder=encoder,
        order=AsRead(AHEAD * opened.engine.max_running) if work.given.ordered else AsFinished(),
        records=work.records,
        run=run,
    )


def _tell(work: Work, opened: Opened, seed: int) -> None:
    """Say what is to be known before the first record."""
    if work.given.shared.verbose:
        work.notes.plain(choices_text(opened, work.job, seed))
    if opened.engine.one_at_a_time is not None and work.given.max_running != 1:
        work.notes.note(opened.engine.one_at_a_time)
    tell_typing(work)
