"""New preset files: commented drafts in the user's folder."""

import json
import math
import os
from pathlib import Path
from typing import Any

from ..generation.about import SETTINGS
from ..generation.errors import PresetError, RunError
from ..generation.ranges import RANGES
from .finding import DEFAULT, check_name, find, is_path, user_folder
from .preset import Preset
from .settings import resolve

_HEAD = """\
# Takes everything from its parent, except what stands here without a # before it.
# `minigen presets check {name}` checks this file, `minigen presets show {name}` shows what comes out.
description: {description}

extends: {parent} # one parent: a preset's name, or a path that ends in .yaml

model: # merged over the parent's key by key; a new source drops the parent's revision
  # source: {source} # or ./folder, ./file.gguf, or a list of those
  # device: {device} # auto, cuda, cuda:N, mps, cpu, balanced
  # dtype: {dtype} # auto, float32, float16, bfloat16
  # compile: {compile} # auto, never, require: whether a compiled step is used
  # weights: {weights} # exact, int8: those of the compiled step

prompt:
  # mode: {mode} # auto, chat, raw
  # system: {system}
  # template: {template} # your text takes the place of {{input}}

sampling:
"""


def create(name: str, parent: str = DEFAULT) -> Path:
    """Write a draft of a preset into the user's folder and give its path.

    Raises PresetError if the name is taken or not allowed or the parent is not valid, RunError if the disk refuses.
    """
    from .loading import load

    folder = user_folder()
    if folder is None:
        raise PresetError("There is no home folder, and so no place for presets of your own.")
    path = folder / f"{check_name(name)}.yaml"
    text = draft(name, load(parent), _reference(parent))
    try:
        make_private(folder)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise PresetError(f"{path} exists already; choose another name, or edit that file.") from None
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path


def draft(name: str, parent: Preset, reference: str) -> str:
    """Write a preset that extends `parent`, with each setting and its present value as a comment."""
    model, prompt = parent.model, parent.prompt
    source = getattr(model.sources[-1], "repo", "OWNER/NAME")
    about = f"{name}, based on {parent.name}" if reference != name else f"The built-in {name} with changes"
    head = _HEAD.format(
        name=name,
        description=_yaml(about),
        parent=_yaml(reference),
        source=source,
        device=model.device,
        dtype=model.dtype,
        compile=model.compile,
        weights=model.weights,
        mode=prompt.mode,
        system=_yaml(prompt.system),
        template=_yaml(prompt.template or "Summarise:\n\n{input}"),
    )
    values = resolve(parent, {}).choices()
    return head + "".join(_setting(key, values[key].value) for key in SETTINGS)


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, for their owner alone."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def _setting(name: str, value: Any) -> str:
    bounds = f" ({RANGES[name]})" if name in RANGES else ""
    return f"  # {SETTINGS[name]}{bounds}\n  # {name}: {_yaml(value)}\n"


def _reference(parent: str) -> str:
    """Give a parent as `extends` should name it from the user's folder."""
    return os.path.abspath(find(parent).path) if is_path(parent) else parent


def _yaml(value: Any) -> str:
    """Write a value in YAML's flow style, which JSON is but for infinity and number keys."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and math.isinf(value):
        return "-.inf" if value < 0 else ".inf"
    return json.dumps(value, ensure_ascii=False)
