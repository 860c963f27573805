"""A preset as it stands after merging, for people and for programs: every value with its origin."""

import json
import math
from typing import Any

from ..generation.sources import Source
from .preset import Preset
from .settings import Choice, preset_choice, resolve


def rows(preset: Preset) -> list[tuple[str, str, str]]:
    """Give name, value and origin of each setting as text."""
    choices = _choices(preset)
    origin = preset_choice(preset, "model.source", None).origin
    sources = [("source", str(source), origin) for source in preset.model.sources]
    return sources + [(key, _text(choice.value), choice.origin) for key, choice in choices.items()]


def document(preset: Preset) -> dict[str, Any]:
    """Give the preset as plain data for JSON."""
    return {
        "name": preset.name,
        "path": str(preset.path),
        "description": preset.description,
        "sources": [_source(source) for source in preset.model.sources],
        "settings": {
            key: {"value": plain(choice.value), "origin": choice.origin} for key, choice in _choices(preset).items()
        },
    }


def plain(value: Any) -> Any:
    """Give a setting's value as JSON has it: no infinity (null instead), keys as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return None
    return list(value) if isinstance(value, tuple) else value


def _choices(preset: Preset) -> dict[str, Choice]:
    prompt = preset.prompt
    return resolve(preset, {}).choices() | {
        "system": preset_choice(preset, "prompt.system", prompt.system),
        "template": preset_choice(preset, "prompt.template", prompt.template),
    }


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and math.isinf(value):
        return "-.inf"
    is_word = isinstance(value, str) and value.replace(":", "").isalnum()
    return value if is_word else json.dumps(value, ensure_ascii=False)


def _source(source: Source) -> dict[str, str]:
    names = ("wheel", "file", "sha256", "size", "repo", "revision", "path")
    return {name: str(getattr(source, name)) for name in names if getattr(source, name, None) is not None}
