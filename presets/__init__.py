"""Presets: YAML files with model, prompt and sampling settings under a name."""

from pathlib import Path

from .finding import DEFAULT, Listed, names
from .preset import Place, Preset, PromptSettings
from .settings import Choice, Settings, check_flags, choose_model_settings, resolve

__all__ = [
    "DEFAULT",
    "Choice",
    "Listed",
    "Place",
    "Preset",
    "PromptSettings",
    "Settings",
    "check_flags",
    "choose_model_settings",
    "load",
    "names",
    "problems",
    "resolve",
]


def load(name_or_path: str | Path) -> Preset:
    """Load a preset by name or path, merged over its parents; raise PresetError if it is not valid."""
    from .loading import load  # pydantic is loaded when a preset is read, not before

    return load(name_or_path)


def problems(name_or_path: str | Path) -> list[str]:
    """Give one sentence with file and line for each fault of a preset, none for a valid one."""
    from .loading import problems

    return problems(name_or_path)
