"""Opening a model for a command: which one is meant, and its load with what is said meanwhile."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING

from ..generation.errors import UsageError
from ..generation.sources import ModelSettings, parse_source

if TYPE_CHECKING:
    from ..generation.model import Model
    from ..presets import Preset
    from .notes import Notes


def model_settings(
    preset: Preset,
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
