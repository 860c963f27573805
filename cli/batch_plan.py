"""What a batch was asked to do, checked before any model is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..generation.errors import UsageError
from .batch_earlier import Done, Earlier
from .batch_input import Input
from .batch_requests import Form, is_blank
from .contradictions import refuse_together
from .job import Flags, Job, build_job, check_contradictions
from .notes import Notes

_EACH_LINE = "each line of the input"  # where a run has its prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFlags:
    """The command line of `minigen batch` as it was given."""

    shared: Flags  # those that `minigen run` takes as well
    source: Path
    lines: bool
    ordered: bool
    resume: bool
    overwrite: bool
    max_running: int | None
    kv_memory: int | None
    ray: str | None  # the address of a cluster; "": one that is found; None: no cluster
    debug: bool

    @property
    def form(self) -> Form:
        """What a line of the input is."""
        return "text" if self.lines else "json"


def batch_flags(params: dict[str, Any], sampling: dict[str, Any]) -> BatchFlags:
    """Give the parameters of the command as flags. sampling: by the names of SamplingParams."""
    named = {name: value for name, value in params.items() if name in Flags.__dataclass_fields__}
    shared = Flags(**named, sampling=sampling, prompt=_EACH_LINE, no_stdin=True)  # which the input may be
    own = {name: params[name] for name in BatchFlags.__dataclass_fields__ if name != "shared"}
    return BatchFlags(shared=shared, **own)


def batch_job(given: BatchFlags, notes: Notes) -> Job:
    """Check what the flags lead to. Raises UsageError and its kind."""
    check_contradictions(given.shared)
    refuse_together([(given.resume, "--resume", given.overwrite, "--overwrite")])
    return build_job(given.shared, notes)


def check_apart(source: Input, output: Path | None) -> None:
    """Raise UsageError where the output is the input."""
    if source.path is not None and output is not None and output.exists() and os.path.samefile(source.path, output):
        raise UsageError(f"--output {str(output)!r} is the input itself: give another file.")


def check_cluster(given: BatchFlags, job: Job) -> None:
    """Raise UsageError where --ray is given and Ray is not here, or a device that a cluster does not choose by."""
    if given.ray is None:
        return
    if os.name != "posix":
        raise UsageError("--ray needs Linux or macOS.")
    if not all(find_spec(name) for name in ("ray", "pyarrow", "pandas")):
        raise UsageError('--ray needs Ray: pip install "minigen-cli[ray]".')
    device = job.model.device
    if device not in ("auto", "cuda", "cpu"):
        raise UsageError(f"--ray gives each worker a GPU or cores: the device must be auto, cuda or cpu, not {device}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What an input holds."""

    num_requests: int
    num_left: int  # not done by an earlier run


def survey(source: Input, form: Form, earlier: Earlier) -> Survey:
    """Look through a file, a line at a time. Raises UsageError where it is not what an output was begun with."""
    lines, done = source.open(), Done(earlier)
    num_requests = num_left = 0
    try:
        for line in lines:
            if not is_blank(line, form):
                num_requests += 1
                num_left += not done.holds(line)
    finally:
        lines.close()
    done.check_end(lines.num_lines)
    return Survey(num_requests=num_requests, num_left=num_left)
