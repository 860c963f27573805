"""Sampling settings: what they are called, what they may be, and what their neutral values are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import ParameterError
from .orders import Order, check_order
from .ranges import MAX_SEED, RANGES, as_number

MAX_TEXTS = 64  # of a list of texts
TEXTS = ("stop", "bad_words", "dry_sequence_breakers")  # settings that are lists of texts
TOKEN_IDS = ("end_token_ids", "allowed_token_ids")  # settings that are lists of token ids
BREAKERS = ("\n", ":", '"', "*")


def next_seed(seed: int, steps: int = 1) -> int:
    """Give the seed of a later sample: seed + steps, wrapping within 0 … 2^63−1."""
    return (seed + steps) % (MAX_SEED + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling settings. Each default is neutral: it changes nothing. `None` means the default.

    Raises ParameterError for a value out of its range, and for one that the engine of `order` does not have.
    """

    temperature: float = 1.0  # 0 picks the likeliest token and skips the filters below
    dynatemp_range: float = 0.0  # temperature ± this, by the entropy; 0 holds it still
    dynatemp_exponent: float = 1.0
    top_n_sigma: float = 0.0  # standard deviations below the highest logit; 0 keeps every token
    top_k: int = 0  # 0 keeps every token
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0
    xtc_probability: float = 0.0  # how often XTC acts; 0 never
    xtc_threshold: float = 0.1
    mirostat_tau: float = 0.0  # the surprisal aimed at, in bits; 0 is off
    mirostat_eta: float = 0.1  # its learning rate
    repetition_penalty: float = 1.0  # prompt and output, each token once
    frequency_penalty: float = 0.0  # output only, per occurrence
    presence_penalty: float = 0.0  # output only, once
    no_repeat_ngram_size: int = 0  # 0 bans no repeated n-gram
    dry_multiplier: float = 0.0  # 0 is off
    dry_base: float = 1.75
    dry_allowed_length: int = 2  # tokens that may be repeated for nothing
    dry_range: int = 0  # how many tokens back; 0: all
    dry_sequence_breakers: Sequence[str] = BREAKERS  # texts that no repetition is counted across
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)  # −inf bans a token
    allowed_token_ids: Sequence[int] = ()  # empty: every token
    bad_words: Sequence[str] = ()  # texts whose tokens are never written in a row
    max_new_tokens: int = 128
    min_new_tokens: int = 0  # no end token before this many
    stop: Sequence[str] = ()  # literal strings that end the text; never shown
    ignore_eos: bool = False
    end_token_ids: Sequence[int] = ()  # end tokens besides the model's own
    order: Order = "minigen"  # whose order and rules the filters run by
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
        for name in TEXTS:
            object.__setattr__(self, name, _checked_texts(name, getattr(self, name)))
        for name in TOKEN_IDS:
            object.__setattr__(self, name, _checked_ids(name, getattr(self, name)))
        check_order(self)


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


def _checked_texts(name: str, texts: Any) -> tuple[str, ...]:
    wanted = f"at most {MAX_TEXTS} strings, none of them empty"
    listed = (texts,) if isinstance(texts, str) else texts
    if not isinstance(listed, Sequence) or not all(isinstance(text, str) and text for text in listed):
        raise ParameterError(name, texts, wanted)
    if len(listed) > MAX_TEXTS:
        raise ParameterError(name, f"{len(listed)} strings", wanted)
    return tuple(listed)


def _checked_ids(name: str, ids: Any) -> tuple[int, ...]:
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes | bytearray):
        raise ParameterError(name, ids, "a list of token ids")
    for token_id in ids:
        if not as_number(int, token_id) >= 0:
            raise ParameterError(name, token_id, "token ids, 0 or more")
    return tuple(map(int, ids))
