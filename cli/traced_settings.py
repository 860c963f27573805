"""The settings of a trace, and what flags make of them for a replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..generation.errors import ParameterError, UsageError
from ..generation.params import SamplingParams, next_seed
from ..presets.settings import FLAG, SAMPLING, Choice
from ..presets.spelling import flag_of
from .trace_file import TracedSample, TraceHeader

_ENDING = ("max_new_tokens", "stop", "ignore_eos", "end_token_ids")
_INSTEAD = {
    "bad_words": "ban their token ids with --logit-bias ID=-inf instead",
    "dry_sequence_breakers": "it keeps those that the run was given",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What a replay draws under, beside what the run was drawn under."""

    recorded: SamplingParams
    params: SamplingParams
    choices: Mapping[str, Choice]  # by name; device, dtype, weights and mode of the run among them
    changed: Sequence[str]
    has_seed: bool  # a flag gives other random numbers

    def seed_of(self, sample: TracedSample) -> int:
        """Give the seed that a sample is drawn with."""
        given = self.params.seed
        return next_seed(given, sample.index) if self.has_seed and given is not None else sample.seed


def recorded_params(settings: Mapping[str, Mapping[str, Any]]) -> SamplingParams:
    """Give the sampling settings of a trace's header. Raises ParameterError for what is none."""
    values = {name: settings[name]["value"] for name in SAMPLING if name in settings}
    bias = values.get("logit_bias")
    if isinstance(bias, Mapping):  # in JSON a key is a text, and null stands for −inf
        values["logit_bias"] = {_whole(key): -math.inf if each is None else each for key, each in bias.items()}
    return SamplingParams(**values)


def replay_settings(header: TraceHeader, flags: Mapping[str, Any]) -> ReplaySettings:
    """Lay flags over the settings of a trace; None means not given.

    Raises UsageError for a flag that a replay cannot follow, ParameterError for a token id that the model lacks.
    """
    recorded = recorded_params(header.settings)
    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in given.items():
        _check(name, value, header, recorded)
    params = replace(recorded, **given)
    if params.order == "mlx" and params.xtc_probability > 0 and not header.newline_ids:
        raise UsageError("XTC spares line breaks with --order mlx, and this trace does not hold their token ids.")
    choices = {name: Choice(kept["value"], kept["origin"]) for name, kept in header.settings.items()}
    choices |= {name: Choice(getattr(params, name), f"{FLAG} {flag_of(name)}") for name in given}
    changed = [name for name in SAMPLING if getattr(params, name) != getattr(recorded, name)]
    return ReplaySettings(recorded=recorded, params=params, choices=choices, changed=changed, has_seed="seed" in given)


def _check(name: str, value: Any, header: TraceHeader, recorded: SamplingParams) -> None:
    flag = flag_of(name)
    if name in _ENDING:
        raise UsageError(
            f"{flag} ends a text, and a replay draws the recorded tokens again to their end: leave it out."
        )
    if name in _INSTEAD:
        raise UsageError(f"{flag} needs the model's tokenizer, which a trace does not hold: {_INSTEAD[name]}.")
    if name == "dry_multiplier" and value > 0 and recorded.dry_multiplier == 0 and recorded.dry_sequence_breakers:
        raise UsageError(f"{flag} {value:g} needs the tokens of its breakers, and a run without DRY leaves none.")
    if name in ("logit_bias", "allowed_token_ids"):
        wrong = next((token_id for token_id in value if token_id >= header.vocab_size), None)
        if wrong is not None:
            raise ParameterError(flag, wrong, f"token ids from 0 to {header.vocab_size - 1}")


def _whole(key: str) -> int | str:
    return int(key) if key.isascii() and key.isdecimal() and len(key) < 20 else key
