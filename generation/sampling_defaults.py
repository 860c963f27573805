"""What a model's own files say about sampling."""

import json
from pathlib import Path
from typing import Any

from .errors import ParameterError
from .ranges import RANGES

SAMPLING_NAMES = (  # what a generation_config.json may say about sampling that means the same here
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "max_new_tokens",
    "min_new_tokens",
)


def sampling_defaults(folder: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Give the sampling settings that a folder's generation_config.json names, and warnings on those left out."""
    path = folder / "generation_config.json"
    try:
        named = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError):
        return {}, (f"{path} cannot be read; its settings are left out.",)
    defaults: dict[str, Any] = {}
    warnings = []
    for name in SAMPLING_NAMES:
        value = named.get(name) if isinstance(named, dict) else None
        if value is None:
            continue
        try:
            defaults[name] = RANGES[name].check(name, value)
        except ParameterError as error:
            warnings.append(f"{path}: {error} It is left out.")
    return defaults, tuple(warnings)
