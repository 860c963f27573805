"""The model and the engine of a batch, opened on this machine or by a worker of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .. import presets
from ..generation.errors import ParameterError
from ..presets.spelling import flag_of
from .encoding import choose_mode
from .opening import open_model, settled
from .reporting import settings_text
from .samples import Run

if TYPE_CHECKING:
    from ..generation.engine import Engine
    from ..generation.model import Model
    from ..presets import Settings
    from .batch_plan import BatchFlags
    from .job import Job
    from .notes import Notes

_RUNNING_ON_CPU: Final = 16
_RUNNING_ELSEWHERE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model with its engine, and the settings that hold with it."""

    model: Model
    engine: Engine
    settings: Settings  # with device, number type, weights and mode chosen


def open_engine(given: BatchFlags, job: Job, notes: Notes) -> Opened:
    """Load the model of a batch, settle what depends on it, and give it an engine."""
    shared = given.shared
    name = shared.model or job.preset.name
    model = open_model(name, job.model, notes, offline=shared.offline, threads=shared.threads, is_quiet=shared.quiet)
    settings = presets.resolve(job.preset, job.flags, model.sampling_defaults)
    settings = settled(settings, model, choose_mode(settings, job, model, notes))
    return Opened(model=model, engine=_engine(given, model), settings=settings)


def most_running(given: BatchFlags, device: str) -> int:
    """Give how many requests one engine runs at a time."""
    return given.max_running or (_RUNNING_ON_CPU if device == "cpu" else _RUNNING_ELSEWHERE)


def choices_text(opened: Opened, job: Job, seed: int) -> str:
    """Give every setting with its origin, a line each. seed: of line 1."""
    run = Run(
        model=opened.model.name,
        preset=job.preset.name,
        prompt="",
        settings=opened.settings.choices(),
        device=opened.model.device,
        is_compiled=opened.model.package is not None,
    )
    return settings_text(run, seed)


def _engine(given: BatchFlags, model: Model) -> Engine:
    from ..generation.engine import Engine

    try:
        return Engine(model, max_running=most_running(given, model.device), kv_memory=given.kv_memory)
    except ParameterError as error:
        raise ParameterError(flag_of(error.name), error.value, error.wanted) from None
