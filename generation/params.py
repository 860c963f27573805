"""Sampling settings: what they are called, what they may be, and what their neutral values are."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import ParameterError

MAX_SEED = 2**63 - 1
MAX_STOPS = 64


def next_seed(seed: int, steps: int = 1) -> int:
    """Give the seed of a later sample: seed + steps, wrapping within 0 … 2^63−1."""
    return (seed + steps) % (MAX_SEED + 1)


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a setting may take. It serves the API, the flags and the presets alike."""

    kind: type[int] | type[float]
    low: float
    high: float | None = None
    is_low_open: bool = False  # True: `low` itself is not allowed

    def __str__(self) -> str:
        whole = "a whole number, " if self.kind is int else ""
        if self.high is None:
            return f"{whole}{self.low:g} or more"
        if self.high == MAX_SEED:
            return f"{whole}{self.low:g} to 2^63-1"
        if self.is_low_open:
            return f"{whole}above {self.low:g} and at most {self.high:g}"
        return f"{whole}{self.low:g} to {self.high:g}"

    def check(self, name: str, value: Any) -> int | float:
        """Give `value` as the range's kind of number; raise ParameterError for anything else."""
        number = as_number(self.kind, value)
        is_low_enough = self.high is None or number <= self.high
        is_high_enough = number > self.low if self.is_low_open else number >= self.low
        if not (is_low_enough and is_high_enough and number < math.inf):  # NaN fails every comparison
            is_number = self.kind is int or not math.isnan(number)
            raise ParameterError(name, value, str(self) if is_number else f"a number, {self}")
        return number


def as_number(kind: type[int] | type[float], value: Any) -> int | float:
    """Give a number of any library as Python's own; NaN for what is none: texts, truth values, 1.5 as an int."""
    is_truth = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
    if is_truth or isinstance(value, str | bytes | bytearray):
        return math.nan
    try:
        return operator.index(value) if kind is int else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several numbers
        return math.nan


RANGES: dict[str, Range] = {
    "temperature": Range(float, 0, 100),
    "top_k": Range(int, 0),
    "top_p": Range(float, 0, 1, is_low_open=True),
    "min_p": Range(float, 0, 1),
    "typical_p": Range(float, 0, 1, is_low_open=True),
    "repetition_penalty": Range(float, 0, 100, is_low_open=True),
    "frequency_penalty": Range(float, -2, 2),
    "presence_penalty": Range(float, -2, 2),
    "no_repeat_ngram_size": Range(int, 0),
    "max_new_tokens": Range(int, 1),
    "seed": Range(int, 0, MAX_SEED),
    "num_samples": Range(int, 1, 1024),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling settings. Each default is neutral: it changes nothing. `None` means the default.

    Raises ParameterError for a value out of its range.
    """

    temperature: float = 1.0  # 0 picks the likeliest token and skips the filters below
    top_k: int = 0  # 0 keeps every token
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0  # prompt and output, each token once
    frequency_penalty: float = 0.0  # output only, per occurrence
    presence_penalty: float = 0.0  # output only, once
    no_repeat_ngram_size: int = 0  # 0 bans no repeated n-gram
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)  # −inf bans a token
    max_new_tokens: int = 128
    stop: Sequence[str] = ()  # literal strings that end the text; never shown
    ignore_eos: bool = False
    end_token_ids: Sequence[int] = ()  # end tokens besides the model's own
    seed: int | None = None  # None: the engine chooses one and reports it

    def __post_init__(self) -> None:
        for spec in fields(self):
            given = getattr(self, spec.name)
            if given is None and spec.name != "seed":
                object.__setattr__(self, spec.name, _default(spec))
            elif given is not None and spec.name in RANGES:
                object.__setattr__(self, spec.name, RANGES[spec.name].check(spec.name, given))
        if not isinstance(self.ignore_eos, bool):
            raise ParameterError("ignore_eos", self.ignore_eos, "true or false")
        object.__setattr__(self, "logit_bias", _checked_bias(self.logit_bias))
        object.__setattr__(self, "stop", _checked_stop(self.stop))
        object.__setattr__(self, "end_token_ids", _checked_ids("end_token_ids", self.end_token_ids))


def _default(spec: Any) -> Any:
    return {} if spec.name == "logit_bias" else spec.default


def _checked_bias(bias: Any) -> dict[int, float]:
    wanted = "token ids (0 or more) with a finite number or -inf each"
    if not isinstance(bias, Mapping):
        raise ParameterError("logit_bias", bias, wanted)
    checked = {}
    for token_id, value in bias.items():
        index, number = as_number(int, token_id), as_number(float, value)
        if not index >= 0 or not number < math.inf:
            raise ParameterError("logit_bias", {token_id: value}, wanted)
        checked[int(index)] = number
    return checked


def _checked_stop(stop: Any) -> tuple[str, ...]:
    wanted = f"at most {MAX_STOPS} strings, none of them empty"
    stops = (stop,) if isinstance(stop, str) else stop
    if not isinstance(stops, Sequence) or not all(isinstance(text, str) and text for text in stops):
        raise ParameterError("stop", stop, wanted)
    if len(stops) > MAX_STOPS:
        raise ParameterError("stop", f"{len(stops)} strings", wanted)
    return tuple(stops)


def _checked_ids(name: str, ids: Any) -> tuple[int, ...]:
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes | bytearray):
        raise ParameterError(name, ids, "a list of token ids")
    for token_id in ids:
        if not as_number(int, token_id) >= 0:
            raise ParameterError(name, token_id, "token ids, 0 or more")
    return tuple(map(int, ids))
