"""Records: a preset as it stands after merging, and where each of its values comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..generation.sources import ModelSettings


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is written."""

    preset: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings:
    """How text becomes a prompt."""

    mode: Literal["auto", "chat", "raw"] = "auto"
    system: str | None = None
    template: str | None = None  # holds {input} once


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A preset, merged over its parents and checked."""

    name: str
    path: Path
    description: str = ""
    model: ModelSettings
    prompt: PromptSettings = field(default_factory=PromptSettings)
    sampling: Mapping[str, Any] = field(default_factory=dict)  # what the files give, by SamplingParams' names
    places: Mapping[str, Place] = field(default_factory=dict)  # by "sampling.top_p" and the like
    warnings: tuple[str, ...] = ()
