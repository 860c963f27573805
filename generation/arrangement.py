"""The chain in the order that the settings ask for: this project's own, or another engine's by that engine's rules."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from . import chain
from .bans import apply_bad_words
from .chain import Filter, NamedFilter, Stages
from .engine_filters import (
    apply_min_p_by_score,
    apply_top_k_with_ties,
    apply_top_p_by_last_id,
    apply_typical_p_beyond,
    apply_typical_p_with_ties,
    apply_xtc_above,
)
from .filters import apply_temperature
from .orders import (
    LLAMA_CPP_WINDOW,
    LLAMA_CPP_WITH_MIROSTAT,
    MLX_WINDOW,
    RULES,
    VLLM_LEAST_TEMPERATURE,
    VLLM_MOST_BIAS,
)
from .params import SamplingParams
from .penalties import (
    apply_frequency_penalty,
    apply_logit_bias,
    apply_presence_penalty,
    apply_repetition_penalty,
)
from .words import NO_WORDS, Words


def score_stages(
    params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int], words: Words = NO_WORDS
) -> list[NamedFilter]:
    """Give the active stages that change scores, in order: what even a greedy choice obeys."""
    stages = chain.of_scores(params, prompt_ids, output_ids, words)
    return _arranged(params, RULES[params.order].scores, stages, _score_rules(params, prompt_ids, output_ids, words))


def filter_stages(
    params: SamplingParams, *, coin: float = 0.0, limit: float = math.inf, words: Words = NO_WORDS
) -> list[NamedFilter]:
    """Give the active stages that shape the distribution, in order; where `skips_filters`, a choice goes without them.

    coin: XTC acts where this number in [0, 1) is below its probability; limit: mirostat's, in bits.
    """
    if _is_mirostat_alone(params):
        params = replace(params, dynatemp_range=0.0)
    stages = chain.of_distribution(params, coin=coin, limit=limit)
    rules = _filter_rules(params, words, does_xtc_act=coin < params.xtc_probability)
    return _arranged(params, RULES[params.order].filters, stages, rules)


def kept_by_own_order(
    params: SamplingParams,
    row: Tensor,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    *,
    words: Words = NO_WORDS,
    coin: float = 0.0,
    limit: float = math.inf,
) -> Tensor:
    """Give which tokens of a raw row `(vocab,)` are left in this project's own order, `(vocab,)`, true or false."""
    params = replace(params, order="minigen")
    for _, apply in score_stages(params, prompt_ids, output_ids, words):
        row = apply(row)
    if float(row.max()) == -math.inf:  # its bans leave no token
        return torch.zeros_like(row, dtype=torch.bool)
    if params.temperature == 0:
        return torch.zeros_like(row, dtype=torch.bool).index_fill_(0, row.argmax(), True)
    for _, apply in filter_stages(params, coin=coin, limit=limit):
        row = apply(row)
    return row > -math.inf


def _arranged(
    params: SamplingParams, names: Sequence[str], stages: Stages, rules: Mapping[str, Filter]
) -> list[NamedFilter]:
    """Put the active stages into an order, each by the engine's own rule where it has one."""
    if _is_mirostat_alone(params):
        names = [name for name in names if name in LLAMA_CPP_WITH_MIROSTAT]
    return [(name, rules.get(name, stages[name][1])) for name in names if stages[name][0]]


def _is_mirostat_alone(params: SamplingParams) -> bool:
    """Whether llama.cpp runs its chain for mirostat, which has no other filter and no penalty."""
    return params.order == "llama.cpp" and params.mirostat_tau > 0


def _filter_rules(params: SamplingParams, words: Words, *, does_xtc_act: bool) -> dict[str, Filter]:
    """Give the filters that the engine has by another rule."""
    if params.order == "minigen":
        return {}
    top_k = partial(apply_top_k_with_ties, k=params.top_k)
    top_p = partial(apply_top_p_by_last_id, p=params.top_p)
    min_p = partial(apply_min_p_by_score, min_p=params.min_p)
    if params.order == "hf":
        return {"top_k": top_k, "top_p": top_p, "typical_p": partial(apply_typical_p_with_ties, mass=params.typical_p)}
    if params.order == "vllm":
        temperature = partial(apply_temperature, temperature=max(params.temperature, VLLM_LEAST_TEMPERATURE))
        return {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if params.order == "llama.cpp":
        return {"typical_p": partial(apply_typical_p_beyond, mass=params.typical_p), "min_p": min_p}
    xtc = partial(
        apply_xtc_above,
        threshold=params.xtc_threshold if does_xtc_act else None,
        exempt_ids=(*words.newline_ids, *words.end_token_ids),
    )
    return {"top_p": top_p, "min_p": min_p, "xtc_probability": xtc}


def _score_rules(
    params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int], words: Words
) -> dict[str, Filter]:
    """Give the stages that change scores which the engine has by another rule."""
    if params.order == "minigen":
        return {}
    if params.order == "hf":  # matches bad words in the prompt too
        end_tokens = {(token_id,) for token_id in words.end_token_ids}  # it never bans these as words
        bad_word_ids = [word for word in words.bad_word_ids if tuple(word) not in end_tokens]
        return {"bad_words": partial(apply_bad_words, output_ids=[*prompt_ids, *output_ids], bad_word_ids=bad_word_ids)}
    if params.order == "vllm":  # holds every bias within ±100, a ban too
        bias = {
            token_id: max(-VLLM_MOST_BIAS, min(VLLM_MOST_BIAS, value)) for token_id, value in params.logit_bias.items()
        }
        return {"logit_bias": partial(apply_logit_bias, bias=bias)}
    if params.order == "mlx":  # reads all of the prompt but its last token before anything is counted
        newest = [*prompt_ids[-1:], *output_ids][-MLX_WINDOW:]
    else:
        newest = [*prompt_ids, *output_ids][-LLAMA_CPP_WINDOW:]
    return {
        "repetition_penalty": partial(apply_repetition_penalty, seen_ids=newest, penalty=params.repetition_penalty),
        "frequency_penalty": partial(apply_frequency_penalty, output_ids=newest, penalty=params.frequency_penalty),
        "presence_penalty": partial(apply_presence_penalty, output_ids=newest, penalty=params.presence_penalty),
    }
