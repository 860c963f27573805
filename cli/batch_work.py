"""What a batch works with before its model is there, wherever it then runs, and what is said at its end."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .batch_input import Input
from .batch_output import Records
from .batch_plan import BatchFlags
from .batch_progress import BatchProgress
from .job import Job
from .notes import Notes

if TYPE_CHECKING:
    from ..presets import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a batch works with before its model is there."""

    given: BatchFlags
    job: Job
    source: Input
    records: Records
    total: int | None  # requests of the input, where they were counted
    notes: Notes


def progress_of(work: Work) -> BatchProgress:
    """Begin to count and to show what a batch does."""
    return BatchProgress(work.notes, sys.stderr, work.total, is_typed=work.source.is_terminal)


def seed_of(settings: Settings, records: Records) -> int:
    """Give the seed of line 1: the one that was asked for, that of the batch which is continued, or a new one."""
    if settings.params.seed is not None:
        return settings.params.seed
    if records.earlier.run is not None:
        return int(records.earlier.run["seed"])
    from ..generation.sampler import choose_seed

    return choose_seed()


def tell_typing(work: Work) -> None:
    """Say how an input that is typed is ended."""
    if work.source.is_terminal:
        work.notes.note("Type a request on each line; Ctrl-D on a line of its own ends them.")


def ended(
    work: Work, progress: BatchProgress, code: int, seed: int, *, device: str | None, num_workers: int = 0
) -> int:
    """Bring the output in order, say how it went, and give the exit code on.

    code: 0, 1 where a line failed, 130, 143 or 129 after a signal. device: whose memory is told; None: that of others.
    num_workers: of a cluster; 0: the batch ran here.
    """
    given, notes, records = work.given, work.notes, work.records
    is_whole = code in (0, 1)
    if is_whole and given.ordered:
        records.put_in_order()
    shared = given.shared
    progress.end(device, seed, num_workers=num_workers, is_verbose=shared.verbose, is_quiet=shared.quiet)
    if not is_whole:
        rest = ", and --resume goes on with the others." if records.is_file else "."
        notes.note(f"{'interrupted' if code == 130 else 'terminated'}; what is done is written{rest}")
    return code
