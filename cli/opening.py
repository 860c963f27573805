"""Opening a model for a command: which one is meant, and its load with what is said meanwhile."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from .. import presets
from ..generation.errors import ParameterError, UsageError
from ..generation.sources import ModelSettings, parse_source
from ..presets.spelling import flag_of

if TYPE_CHECKING:
    from ..generation.model import Model
    from .answering import TextFlags
    from .notes import Notes


def meant_preset(name: str | None, notes: Notes) -> presets.Preset:
    """Load the preset that is named, or the default one; say its warnings."""
    preset = presets.load(presets.DEFAULT if name is None else name)
    for text in preset.warnings:
        notes.warn(text)
    return preset


class ModelFlags(Protocol):
    """The flags of a command that say which model it takes, and where."""

    @property
    def model(self) -> str | None: ...

    @property
    def revision(self) -> str | None: ...

    @property
    def device(self) -> str | None: ...

    @property
    def dtype(self) -> str | None: ...

    @property
    def trust_remote_code(self) -> bool: ...


def model_settings(
    preset: presets.Preset, given: ModelFlags, *, compiled: str | None, weights: str | None
) -> ModelSettings:
    """Give the model section: the preset's, or that of --model, with the flags over it.

    compiled, weights: --compile and --weights, or `never` and `exact` for a command that decodes nothing.
    """
    if given.revision is not None and given.model is None:
        raise UsageError(f"--revision {given.revision} needs --model with a hub id.")
    base = preset.model if given.model is None else ModelSettings(sources=(parse_source(given.model, given.revision),))
    device, dtype = given.device or base.device, given.dtype or base.dtype
    try:
        return replace(
            base,
            device=device,
            dtype=dtype,
            compile=compiled or base.compile,
            weights=weights or base.weights,
            trust_remote_code=given.trust_remote_code,
        )
    except ParameterError as error:  # of the flag that would set it right, whoever said it
        raise ParameterError(flag_of(error.name), error.value, error.wanted) from None


def settled(settings: presets.Settings, model: Model, mode: str) -> presets.Settings:
    """Give settings with the device, the number type, the weights and the mode that are in use.

    Where other weights are in use than were asked for, their origin says so.
    """
    weights = "exact" if model.package is None else model.package.facts.weights
    origins = dict(settings.origins)
    if weights != settings.weights:
        origins["weights"] = f"no compiled step with {settings.weights} weights is in use"
    return replace(settings, device=model.device, dtype=model.dtype, weights=weights, mode=mode, origins=origins)


def open_model(
    name: str,
    settings: ModelSettings,
    notes: Notes,
    *,
    offline: bool = False,
    threads: int | None = None,
    is_quiet: bool = False,
) -> Model:
    """Load a model, with a status line and progress on a terminal, and say its warnings."""
    from ..generation.collection import paused_collection
    from .progress import TerminalProgress
    from .reporting import LoadProgress

    notes.status(f"loading {name} ...")
    progress = LoadProgress(TerminalProgress(is_quiet), notes)
    with paused_collection():
        from ..generation.model import load_model

        model = load_model(settings, offline=offline, progress=progress, threads=threads)
        gc.freeze()  # the libraries stay to the end: never look through them again
    for text in model.warnings:
        notes.warn(f"warning: {text}")
    return model


def meant_model(given: TextFlags, notes: Notes) -> tuple[str, ModelSettings]:
    """Give the model that the flags mean, with what to call it while it loads; say a preset's warnings."""
    presets.check_flags({"device": given.device, "dtype": given.dtype})
    preset = meant_preset(given.preset, notes)
    return given.model or preset.name, model_settings(preset, given, compiled="never", weights="exact")


def opened_model(given: TextFlags, notes: Notes) -> Model:
    """Load the model that the flags mean."""
    name, settings = meant_model(given, notes)
    return open_model(name, settings, notes, offline=given.offline, threads=given.threads, is_quiet=given.quiet)
