"""The stages of the chain: whether each is active under given settings, and its filter by this project's own rule.

A stage has the name of the setting that switches it on. The order in which they run stands in orders.py.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from .bans import apply_allowed_token_ids, apply_bad_words, apply_min_new_tokens
from .cutoffs import apply_epsilon_cutoff, apply_eta_cutoff, apply_mirostat, apply_top_n_sigma, apply_xtc
from .dry import apply_dry
from .filters import (
    apply_dynatemp,
    apply_min_p,
    apply_temperature,
    apply_top_k,
    apply_top_p,
    apply_typical_p,
)
from .params import SamplingParams
from .penalties import (
    apply_frequency_penalty,
    apply_logit_bias,
    apply_no_repeat_ngram,
    apply_presence_penalty,
    apply_repetition_penalty,
)
from .words import NO_WORDS, Words

Filter = Callable[[Tensor], Tensor]
NamedFilter = tuple[str, Filter]
Stages = Mapping[str, tuple[bool, Filter]]  # by name: whether it is active, and what it does


def of_scores(
    params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int], words: Words = NO_WORDS
) -> Stages:
    """Give every stage that changes scores, in no order."""
    seen_ids = [*prompt_ids, *output_ids]
    return {**_bans(params, output_ids, words), **_penalties(params, seen_ids, output_ids, words)}


def of_distribution(params: SamplingParams, *, coin: float = 0.0, limit: float = math.inf) -> Stages:
    """Give every stage that shapes the distribution, in no order.

    coin: XTC acts where this number in [0, 1) is below its probability; limit: mirostat's, in bits.
    """
    p, is_still = params, params.dynatemp_range == 0
    dynatemp = partial(apply_dynatemp, temperature=p.temperature, spread=p.dynatemp_range, exponent=p.dynatemp_exponent)
    xtc_threshold = p.xtc_threshold if coin < p.xtc_probability else None
    return {
        "top_n_sigma": (p.top_n_sigma > 0, partial(apply_top_n_sigma, n=p.top_n_sigma)),
        "temperature": (is_still and p.temperature != 1, partial(apply_temperature, temperature=p.temperature)),
        "dynatemp_range": (not is_still, dynatemp),
        "top_k": (p.top_k > 0, partial(apply_top_k, k=p.top_k)),
        "top_p": (p.top_p < 1, partial(apply_top_p, p=p.top_p)),
        "min_p": (p.min_p > 0, partial(apply_min_p, min_p=p.min_p)),
        "typical_p": (p.typical_p < 1, partial(apply_typical_p, mass=p.typical_p)),
        "epsilon_cutoff": (p.epsilon_cutoff > 0, partial(apply_epsilon_cutoff, epsilon=p.epsilon_cutoff)),
        "eta_cutoff": (p.eta_cutoff > 0, partial(apply_eta_cutoff, epsilon=p.eta_cutoff)),
        "xtc_probability": (p.xtc_probability > 0, partial(apply_xtc, threshold=xtc_threshold)),
        "mirostat_tau": (p.mirostat_tau > 0, partial(apply_mirostat, limit=limit)),
    }


def _bans(params: SamplingParams, output_ids: Sequence[int], words: Words) -> Stages:
    """Give the stages that name tokens."""
    allowed = partial(apply_allowed_token_ids, allowed_ids=params.allowed_token_ids)
    bad_words = partial(apply_bad_words, output_ids=output_ids, bad_word_ids=words.bad_word_ids)
    min_new_tokens = partial(
        apply_min_new_tokens,
        num_new=len(output_ids),
        minimum=params.min_new_tokens,
        end_token_ids=words.end_token_ids,
    )
    return {
        "logit_bias": (bool(params.logit_bias), partial(apply_logit_bias, bias=params.logit_bias)),
        "allowed_token_ids": (bool(params.allowed_token_ids), allowed),
        "bad_words": (bool(params.bad_words), bad_words),
        "min_new_tokens": (params.min_new_tokens > 0, min_new_tokens),
    }


def _penalties(params: SamplingParams, seen_ids: Sequence[int], output_ids: Sequence[int], words: Words) -> Stages:
    """Give the stages that look at what was there before."""
    repetition = partial(apply_repetition_penalty, seen_ids=seen_ids, penalty=params.repetition_penalty)
    frequency = partial(apply_frequency_penalty, output_ids=output_ids, penalty=params.frequency_penalty)
    presence = partial(apply_presence_penalty, output_ids=output_ids, penalty=params.presence_penalty)
    ngram = partial(apply_no_repeat_ngram, seen_ids=seen_ids, size=params.no_repeat_ngram_size)
    dry = partial(
        apply_dry,
        seen_ids=seen_ids[-params.dry_range :],  # 0: all
        multiplier=params.dry_multiplier,
        base=params.dry_base,
        allowed_length=params.dry_allowed_length,
        breakers=words.breakers,
    )
    return {
        "repetition_penalty": (params.repetition_penalty != 1, repetition),
        "frequency_penalty": (params.frequency_penalty != 0, frequency),
        "presence_penalty": (params.presence_penalty != 0, presence),
        "no_repeat_ngram_size": (params.no_repeat_ngram_size > 0, ngram),
        "dry_multiplier": (params.dry_multiplier > 0, dry),
    }
