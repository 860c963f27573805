"""A batch from its flags to its exit code: input and output opened, the model loaded, the loop run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from .. import presets
from ..generation.errors import ParameterError
from ..presets.spelling import flag_of
from .batch_earlier import Done, check_same
from .batch_encoding import LineEncoder
from .batch_input import Input, LineReader, input_at
from .batch_order import AsFinished, AsRead
from .batch_output import Records, open_records
from .batch_plan import BatchFlags, batch_job, check_apart, survey
from .batch_progress import BatchProgress
from .batch_records import run_facts
from .encoding import choose_mode
from .interrupts import Interrupts
from .job import Job
from .notes import Notes
from .opening import open_model
from .reporting import settings_text
from .samples import Run
from .terminal import is_terminal
from .vocabulary import check_token_ids

if TYPE_CHECKING:
    from ..generation.engine import Engine
    from ..generation.model import Model
    from ..presets import Settings
    from .batch_loop import BatchPlan

AHEAD: Final = 16  # --ordered: how many times as many lines as can run are read past the oldest unfinished one
_RUNNING_ON_CPU, _RUNNING_ELSEWHERE = 16, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What a batch works with before its model is there."""

    given: BatchFlags
    job: Job
    source: Input
    records: Records
    total: int | None  # requests of the input, where they were counted
    notes: Notes


def run_batch(given: BatchFlags, notes: Notes, interrupts: Interrupts) -> int:
    """Do a batch and give its exit code. Everything that needs no model is checked before one is loaded."""
    shared = given.shared
    job, source = batch_job(given, notes), input_at(given.source)
    check_apart(source, shared.output)
    check_token_ids(job)
    with open_records(
        shared.output, does_resume=given.resume, does_overwrite=given.overwrite, clear=notes.clear
    ) as records:
        total = None
        if source.is_file and (given.resume or _has_statistics(given)):
            notes.status("counting the requests ...")
            counts = survey(source, given.form, records.earlier)
            if given.resume and counts.num_left == 0:
                return _nothing_left(given, counts.num_requests, records, notes)
            total = counts.num_requests
        work = _Work(given=given, job=job, source=source, records=records, total=total, notes=notes)
        return _generate(work, interrupts)


def _has_statistics(given: BatchFlags) -> bool:
    return given.shared.verbose or (is_terminal(sys.stderr) and not given.shared.quiet)


def _nothing_left(given: BatchFlags, num_requests: int, records: Records, notes: Notes) -> int:
    records.begin()
    if given.ordered:
        records.put_in_order()
    notes.note(f"nothing is left to do: the output has all of the {num_requests} requests.")
    return 0


def _generate(work: _Work, interrupts: Interrupts) -> int:
    from .batch_loop import Batch

    given, notes, records = work.given, work.notes, work.records
    model, settings = _loaded(work)
    engine = _engine(given, model)
    seed = _seed(settings, records)
    run = run_facts(work.job, model, settings, seed=seed, form=given.form)
    check_same(records.earlier, run)
    _tell(work, engine, settings, seed)
    with closing(work.source.open()) as lines:
        records.begin()
        progress = BatchProgress(notes, sys.stderr, work.total, is_typed=work.source.is_terminal)
        encoder = LineEncoder(work.job, model, settings, seed=seed, form=given.form)
        code = Batch(engine, _plan(work, engine, encoder, lines, run), progress, interrupts).run()
    if interrupts.exit_code is None and given.ordered:
        records.put_in_order()
    progress.end(model.device, seed, is_verbose=given.shared.verbose, is_quiet=given.shared.quiet)
    if interrupts.exit_code is not None:
        rest = ", and --resume goes on with the others." if records.is_file else "."
        notes.note(f"{'interrupted' if code == 130 else 'terminated'}; what is done is written{rest}")
    return code


def _engine(given: BatchFlags, model: Model) -> Engine:
    from ..generation.engine import Engine

    limit = _RUNNING_ON_CPU if model.device == "cpu" else _RUNNING_ELSEWHERE
    try:
        return Engine(model, max_running=given.max_running or limit, kv_memory=given.kv_memory)
    except ParameterError as error:
        raise ParameterError(flag_of(error.name), error.value, error.wanted) from None


def _loaded(work: _Work) -> tuple[Model, Settings]:
    """Load the model, and settle what depends on it."""
    shared, job, notes = work.given.shared, work.job, work.notes
    name = shared.model or job.preset.name
    model = open_model(name, job.model, notes, offline=shared.offline, threads=shared.threads, is_quiet=shared.quiet)
    settings = presets.resolve(job.preset, job.flags, model.sampling_defaults)
    mode = choose_mode(settings, job, model, notes)
    return model, replace(settings, device=model.device, dtype=model.dtype, mode=mode)


def _seed(settings: Settings, records: Records) -> int:
    """Give the seed of line 1: the one that was asked for, that of the batch which is continued, or a new one."""
    from ..generation.sampler import choose_seed

    if settings.params.seed is not None:
        return settings.params.seed
    begun = records.earlier.run
    return choose_seed() if begun is None else int(begun["seed"])


def _plan(work: _Work, engine: Engine, encoder: LineEncoder, lines: LineReader, run: Mapping[str, Any]) -> BatchPlan:
    from .batch_loop import BatchPlan

    return BatchPlan(
        lines=lines,
        form=work.given.form,
        done=Done(work.records.earlier),
        encoder=encoder,
        order=AsRead(AHEAD * engine.max_running) if work.given.ordered else AsFinished(),
        records=work.records,
        run=run,
    )


def _tell(work: _Work, engine: Engine, settings: Settings, seed: int) -> None:
    """Say what is to be known before the first record."""
    notes, model = work.notes, engine.model
    if work.given.shared.verbose:
        choices = settings.choices()
        run = Run(model=model.name, preset=work.job.preset.name, prompt="", settings=choices, device=model.device)
        notes.plain(settings_text(run, seed))
    if engine.one_at_a_time is not None and work.given.max_running != 1:
        notes.note(engine.one_at_a_time)
    if work.source.is_terminal:
        notes.note("Type a request on each line; Ctrl-D on a line of its own ends them.")
