"""Numbers that settings may take: one table that serves the API, the flags and the presets alike."""

import math
import operator
from dataclasses import dataclass
from typing import Any

from .errors import ParameterError

MAX_SEED = 2**63 - 1
MAX_TEMPERATURE = 100
LEAST_TEMPERATURE = 1e-30  # above 0; the filters divide by no lower one


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a setting may take. It serves the API, the flags and the presets alike."""

    kind: type[int] | type[float]
    low: float
    high: float | None = None
    is_low_open: bool = False  # True: `low` itself is not allowed

    def __str__(self) -> str:
        return self.after("a whole number" if self.kind is int else "")

    def after(self, noun: str) -> str:
        """Say after a noun which numbers these are: `a number between 0 and 1`, `a whole number, 0 or more`."""
        high = "2^63-1" if self.high == MAX_SEED else f"{self.high:.15g}" if self.high is not None else ""
        if high and not self.is_low_open:
            return f"{noun} between {self.low:g} and {high}".lstrip()
        bounds = f"above {self.low:g} and at most {high}" if high else f"{self.low:g} or more"
        return f"{noun}, {bounds}" if noun else bounds

    def check(self, name: str, value: Any) -> int | float:
        """Give `value` as the range's kind of number; raise ParameterError for anything else."""
        number = as_number(self.kind, value)
        is_low_enough = self.high is None or number <= self.high
        is_high_enough = number > self.low if self.is_low_open else number >= self.low
        if not (is_low_enough and is_high_enough and number < math.inf):  # NaN fails every comparison
            is_number = self.kind is int or not math.isnan(number)
            raise ParameterError(name, value, str(self) if is_number else self.after("a number"))
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
    "temperature": Range(float, 0, MAX_TEMPERATURE),
    "top_k": Range(int, 0),
    "top_p": Range(float, 0, 1, is_low_open=True),
    "min_p": Range(float, 0, 1),
    "typical_p": Range(float, 0, 1, is_low_open=True),
    "repetition_penalty": Range(float, 0, 100, is_low_open=True),
    "frequency_penalty": Range(float, -2, 2),
    "presence_penalty": Range(float, -2, 2),
    "no_repeat_ngram_size": Range(int, 0),
    "min_new_tokens": Range(int, 0),
    "dry_multiplier": Range(float, 0, 100),
    "dry_base": Range(float, 1, 100),
    "dry_allowed_length": Range(int, 1),
    "dry_range": Range(int, 0),
    "top_n_sigma": Range(float, 0, 100),
    "dynatemp_range": Range(float, 0, 100),
    "dynatemp_exponent": Range(float, 0, 100, is_low_open=True),
    "epsilon_cutoff": Range(float, 0, 1),
    "eta_cutoff": Range(float, 0, 1),
    "xtc_probability": Range(float, 0, 1),
    "xtc_threshold": Range(float, 0, 1),
    "mirostat_tau": Range(float, 0, 100),
    "mirostat_eta": Range(float, 0, 1, is_low_open=True),
    "max_new_tokens": Range(int, 1),
    "seed": Range(int, 0, MAX_SEED),
    "num_samples": Range(int, 1, 1024),
}
