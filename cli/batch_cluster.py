"""A batch on a Ray cluster: what it is given, and how it ends."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from .. import presets
from ..generation.sources import ModelSettings, PathSource
from .batch_arrivals import Arrivals
from .batch_cluster_loop import ClusterLoop
from .batch_cluster_process import ClusterProcess
from .batch_earlier import Done, Earlier
from .batch_engine import most_running
from .batch_loop import FEED
from .batch_parcels import CALLS, ClusterPlan, Packer, Ready
from .batch_progress import counted
from .batch_work import Work, ended, progress_of, seed_of, tell_typing
from .interrupts import Interrupts


def generate_on_cluster(work: Work, interrupts: Interrupts) -> int:
    """Generate for every line that is not done, and give the exit code. This process loads no model."""
    seed = seed_of(presets.resolve(work.job.preset, work.job.flags), work.records)
    work.notes.status("connecting to Ray ...")
    with ClusterProcess(does_tell=work.given.debug) as process, closing(work.source.open()) as lines:
        process.send(_plan(work, seed, process.folder))
        ready = process.receive()
        assert isinstance(ready, Ready)
        tell_typing(work)
        progress = progress_of(work)
        num_lines = -(-FEED * most_running(work.given, ready.device) // CALLS)
        num_workers = min(ready.num_workers, _num_parcels(work, num_lines) or ready.num_workers)
        work.notes.status(f"loading the model on {counted(num_workers, 'worker')} ...")
        loop = ClusterLoop(
            process,
            Packer(lines, work.given.form, Done(work.records.earlier), progress, num_lines),
            Arrivals(work, progress),
            progress,
            interrupts,
            num_workers=num_workers,
            is_ordered=work.given.ordered,
        )
        code = loop.run()
    return ended(work, progress, code, seed, device=None, num_workers=num_workers)


def _num_parcels(work: Work, num_lines: int) -> int:
    """Give how many parcels the lines come to that are left; 0 where they were not counted."""
    num_left = 0 if work.total is None else work.total - len(work.records.earlier)
    return -(-num_left // num_lines)


def _plan(work: Work, seed: int, folder: str) -> ClusterPlan:
    job, earlier = work.job, work.records.earlier
    return ClusterPlan(
        given=work.given,
        job=replace(job, model=_found_anywhere(job.model)),
        seed=seed,
        earlier=Earlier(name=earlier.name, run=earlier.run),
        folder=folder,
    )


def _found_anywhere(model: ModelSettings) -> ModelSettings:
    """Give a model's sources with paths that do not depend on the current folder."""
    sources = tuple(
        PathSource(source.path.expanduser().absolute()) if isinstance(source, PathSource) else source
        for source in model.sources
    )
    return replace(model, sources=sources)
