"""Which value holds: a flag beats the preset, the preset the model's defaults, those the built-in ones."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..generation.errors import ParameterError
from ..generation.params import SamplingParams
from ..generation.ranges import RANGES
from ..generation.sources import ModelSettings, PathSource
from .preset import Preset, PromptSettings
from .spelling import flag_of

FLAG, GENERATION_CONFIG, BUILT_IN = "flag", "generation_config", "built-in"
SAMPLING = tuple(spec.name for spec in fields(SamplingParams))
_NEUTRAL = SamplingParams()
_ANY_MODEL = ModelSettings(sources=(PathSource(Path()),))  # a stand-in where one setting is checked alone
MODES = ("auto", "chat", "raw")
OTHERS = ("device", "dtype", "weights", "mode")


class Choice(NamedTuple):
    """A value and where it comes from."""

    value: Any
    origin: str  # "flag --top-p", "preset smollm2 (smollm2.yaml:20)", "generation_config" or "built-in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of a run with its origin: all of SamplingParams, and device, dtype, weights and mode."""

    params: SamplingParams
    device: str
    dtype: str
    weights: str
    mode: str
    origins: Mapping[str, str]

    def choices(self) -> dict[str, Choice]:
        """Give every setting by name, in a fixed order, with its origin."""
        values = {name: getattr(self.params, name) for name in SAMPLING}
        values |= {name: getattr(self, name) for name in OTHERS}
        return {name: Choice(value, self.origins[name]) for name, value in values.items()}


def resolve(
    preset: Preset | None, flags: Mapping[str, Any], model_defaults: Mapping[str, Any] | None = None
) -> Settings:
    """Merge all settings; None in `flags` means not given. Raise ParameterError for a value out of range.

    flags: by the names of SamplingParams, and device, dtype, weights, mode, and model: a model given by flag takes
    the place of the preset's whole model section.
    model_defaults: what the model's generation_config says, by the names of SamplingParams.
    """
    check_flags(flags)
    chosen = {name: _sampling_choice(name, preset, flags, model_defaults or {}) for name in SAMPLING}
    params = SamplingParams(**{name: choice.value for name, choice in chosen.items()})
    where = choose_model_settings(preset, flags)
    return Settings(
        params=params,
        **{name: choice.value for name, choice in where.items()},
        origins={name: choice.origin for name, choice in (chosen | where).items()},
    )


def check_flags(flags: Mapping[str, Any]) -> None:
    """Check the flags alone, before any model is loaded; a ParameterError names the flag: `--top-p must be …`."""
    for name, value in flags.items():
        if name not in {*SAMPLING, *RANGES, *OTHERS, "model"}:
            raise TypeError(f"{name} is not a setting.")
        if value is None or name == "model":
            continue
        try:
            _check(name, value)
        except ParameterError as error:
            raise ParameterError(flag_of(name), error.value, error.wanted) from None


def choose_model_settings(preset: Preset | None, flags: Mapping[str, Any]) -> dict[str, Choice]:
    """Give device, dtype, weights and mode with their origins; they do not depend on the model's own defaults."""
    return {
        "device": _model_choice("device", preset, flags),
        "dtype": _model_choice("dtype", preset, flags),
        "weights": _model_choice("weights", preset, flags),
        "mode": _mode_choice(preset, flags),
    }


def check_model_setting(name: str, value: Any) -> None:
    """Check a device, a dtype or weights the way ModelSettings does; raise ParameterError."""
    if not isinstance(value, str):
        raise ParameterError(name, value, "text")
    changed: dict[str, Any] = {name: value}
    replace(_ANY_MODEL, **changed)


def _check(name: str, value: Any) -> None:
    if name in SAMPLING:
        SamplingParams(**{name: value})
    elif name in RANGES:
        RANGES[name].check(name, value)
    elif name != "mode":
        check_model_setting(name, value)
    elif value not in MODES:
        raise ParameterError(name, value, "one of " + ", ".join(MODES))


def _sampling_choice(
    name: str, preset: Preset | None, flags: Mapping[str, Any], model_defaults: Mapping[str, Any]
) -> Choice:
    if flags.get(name) is not None:
        return Choice(flags[name], f"{FLAG} {flag_of(name)}")
    if preset is not None and preset.sampling.get(name) is not None:
        return Choice(preset.sampling[name], _preset_origin(preset, f"sampling.{name}"))
    if model_defaults.get(name) is not None:
        try:
            _check(name, model_defaults[name])
        except ParameterError as error:
            raise ParameterError(f"{name} in the model's generation_config", error.value, error.wanted) from None
        return Choice(model_defaults[name], GENERATION_CONFIG)
    return Choice(getattr(_NEUTRAL, name), BUILT_IN)


def _model_choice(name: str, preset: Preset | None, flags: Mapping[str, Any]) -> Choice:
    if flags.get(name) is not None:
        return Choice(flags[name], f"{FLAG} {flag_of(name)}")
    is_replaced = flags.get("model") is not None
    if preset is None or is_replaced:
        return Choice(getattr(_ANY_MODEL, name), BUILT_IN)
    return preset_choice(preset, f"model.{name}", getattr(preset.model, name))


def _mode_choice(preset: Preset | None, flags: Mapping[str, Any]) -> Choice:
    if flags.get("mode") is not None:
        return Choice(flags["mode"], f"{FLAG} --{flags['mode']}")  # the flags are --chat and --raw
    if preset is None:
        return Choice(PromptSettings().mode, BUILT_IN)
    return preset_choice(preset, "prompt.mode", preset.prompt.mode)


def preset_choice(preset: Preset, key: str, value: Any) -> Choice:
    """Give a preset's value with its origin: the file and line that give it, or built-in where none does."""
    return Choice(value, _preset_origin(preset, key) if key in preset.places else BUILT_IN)


def _preset_origin(preset: Preset, key: str) -> str:
    place = preset.places.get(key)
    return f"preset {place.preset} ({place})" if place else f"preset {preset.name}"
