"""Opening a model for a command: which one is meant, and its load with what is said meanwhile."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import presets
from ..generation.errors import UsageError
from ..generation.sources import ModelSettings, parse_source

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


def model_settings(
    preset: presets.Preset,
    *,
    model: str | None = None,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> ModelSettings:
    """Give the model section: the preset's, or that of --model, with the flags over it."""
    if revision is not None and model is None:
        raise UsageError(f"--revision {revision} needs --model with a hub id.")
    base = preset.model if model is None else ModelSettings(sources=(parse_source(model, revision),))
    return replace(base, device=device or base.device, dtype=dtype or base.dtype, trust_remote_code=trust_remote_code)


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
    settings = model_settings(
        preset,
        model=given.model,
        revision=given.revision,
        device=given.device,
        dtype=given.dtype,
        trust_remote_code=given.trust_remote_code,
    )
    return given.model or preset.name, settings


def opened_model(given: TextFlags, notes: Notes) -> Model:
    """Load the model that the flags mean."""
    name, settings = meant_model(given, notes)
    return open_model(name, settings, notes, offline=given.offline, threads=given.threads, is_quiet=given.quiet)
