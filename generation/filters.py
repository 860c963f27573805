"""Filters: pure functions from logits to logits, and the order in which they run.

Every filter takes logits `(…, vocab)` in float32 and returns the same shape; a dropped token has logit −inf. `None` and
the neutral value return the input itself. Each filter that works on probabilities takes the softmax of what the filters
before it left, so the survivors are renormalised between filters. Ties go to the lowest token id, on every device.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from .params import RANGES, Range, SamplingParams
from .penalties import (
    apply_frequency_penalty,
    apply_logit_bias,
    apply_no_repeat_ngram,
    apply_presence_penalty,
    apply_repetition_penalty,
)

# A full sort of the vocabulary is slow: the leading few hundred settle nearly every row; only a flat row needs more.
HEADS = (512, 4096)

Stage = tuple[str, Callable[[Tensor], Tensor]]


def score_stages(params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> list[Stage]:
    """Give the active stages that change scores, in order: what even a greedy choice obeys."""
    seen_ids = [*prompt_ids, *output_ids]
    stages: list[tuple[str, bool, Callable[[Tensor], Tensor]]] = [
        ("logit_bias", bool(params.logit_bias), partial(apply_logit_bias, bias=params.logit_bias)),
        (
            "repetition_penalty",
            params.repetition_penalty != 1,
            partial(apply_repetition_penalty, seen_ids=seen_ids, penalty=params.repetition_penalty),
        ),
        (
            "frequency_penalty",
            params.frequency_penalty != 0,
            partial(apply_frequency_penalty, output_ids=output_ids, penalty=params.frequency_penalty),
        ),
        (
            "presence_penalty",
            params.presence_penalty != 0,
            partial(apply_presence_penalty, output_ids=output_ids, penalty=params.presence_penalty),
        ),
        (
            "no_repeat_ngram_size",
            params.no_repeat_ngram_size > 0,
            partial(apply_no_repeat_ngram, seen_ids=seen_ids, size=params.no_repeat_ngram_size),
        ),
    ]
    return [(name, apply) for name, is_active, apply in stages if is_active]


def filter_stages(params: SamplingParams) -> list[Stage]:
    """Give the active stages that shape the distribution, in order; a greedy choice skips them."""
    stages: list[tuple[str, bool, Callable[[Tensor], Tensor]]] = [
        ("temperature", params.temperature != 1, partial(apply_temperature, temperature=params.temperature)),
        ("top_k", params.top_k > 0, partial(apply_top_k, k=params.top_k)),
        ("top_p", params.top_p < 1, partial(apply_top_p, p=params.top_p)),
        ("min_p", params.min_p > 0, partial(apply_min_p, min_p=params.min_p)),
        ("typical_p", params.typical_p < 1, partial(apply_typical_p, mass=params.typical_p)),
    ]
    return [(name, apply) for name, is_active, apply in stages if is_active]


def apply_temperature(logits: Tensor, temperature: float | None) -> Tensor:
    """Divide by the temperature: below 1 sharpens the distribution, above 1 flattens it; 0 leaves the likeliest token.

    Source: Ackley, Hinton and Sejnowski 1985, "A learning algorithm for Boltzmann machines".
    """
    if temperature is None or temperature == 1:
        return logits
    temperature = Range(float, 0).check("temperature", temperature)
    if temperature == 0:
        return apply_top_k(logits, 1)
    limits = torch.finfo(logits.dtype)
    if temperature < 0.01 or (temperature < 1 and bool((logits > limits.max * temperature).any())):
        highest = logits.amax(-1, keepdim=True).clamp(min=limits.min)  # a row of nothing but −inf stays as it is
        logits, temperature = logits - highest, max(temperature, 1e-30)  # a quotient of at most 0 is safe
    return logits / temperature


def apply_top_k(logits: Tensor, k: int | None) -> Tensor:
    """Keep exactly the min(k, vocab) likeliest tokens.

    Source: Fan et al. 2018, "Hierarchical neural story generation".
    """
    k = int(RANGES["top_k"].check("top_k", k or 0))
    if k == 0 or k >= logits.shape[-1]:
        return logits
    ranked = logits.topk(k, dim=-1).values
    return _keep_leading(logits, logits, ranked, torch.full_like(ranked[..., :1], k, dtype=torch.long))


def apply_top_p(logits: Tensor, p: float | None) -> Tensor:
    """Keep a token while the mass ranked above it is below `p`: the token that crosses `p` stays.

    Source: Holtzman et al. 2020, "The curious case of neural text degeneration".
    """
    if p is None or p >= 1:
        return logits
    return _keep_mass(logits, logits, _probs(logits), p)


def apply_min_p(logits: Tensor, min_p: float | None) -> Tensor:
    """Drop tokens less likely than `min_p` times the likeliest one. Source: Nguyen et al. 2024, "Min-p sampling"."""
    if not min_p:
        return logits
    min_p = RANGES["min_p"].check("min_p", min_p)
    probs = _probs(logits)
    return logits.masked_fill(probs < min_p * probs.amax(-1, keepdim=True), -torch.inf)


def apply_typical_p(logits: Tensor, mass: float | None) -> Tensor:
    """Keep the tokens whose surprisal is nearest the entropy until their mass reaches `mass`; may drop the likeliest.

    Source: Meister et al. 2023, "Locally typical sampling".
    """
    if mass is None or mass >= 1:
        return logits
    mass = RANGES["typical_p"].check("typical_p", mass)
    logprobs = logits.log_softmax(-1, dtype=_exact(logits))
    probs = logprobs.exp()
    entropy = -(probs * logprobs).nan_to_num(0.0).sum(-1, keepdim=True)  # (…, 1), nats
    return _keep_mass(logits, -(-logprobs - entropy).abs(), probs, mass)


def leading_ids(scores: Tensor, count: int) -> Tensor:
    """Give the ids of the `count` highest finite scores of one row `(vocab,)`, in order, ties by id; or fewer."""
    edge = scores.topk(min(count, scores.shape[-1])).values[-1]
    ids = ((scores >= edge) & (scores > -math.inf)).nonzero().flatten()  # ascending ids, all ties at the edge
    return ids[scores[ids].sort(descending=True, stable=True).indices[:count]]


def _keep_mass(logits: Tensor, scores: Tensor, probs: Tensor, mass: float) -> Tensor:
    """Keep a token while the probability of those with higher scores is below `mass`; one at least."""
    vocab = logits.shape[-1]
    for size in (*HEADS, vocab):
        ranked, ids = scores.topk(min(size, vocab), dim=-1)
        reached = probs.gather(-1, ids).double()
        count = (reached.cumsum(-1) - reached < mass).sum(-1, keepdim=True).clamp(min=1)
        if size >= vocab or bool((count < size).all()):  # the crossing lies within
            break
    return _keep_leading(logits, scores, ranked, count)


def _keep_leading(logits: Tensor, scores: Tensor, ranked: Tensor, count: Tensor) -> Tensor:
    """Keep exactly `count` tokens a row, those with the highest scores, ties by id.

    ranked: `(…, n)` the leading scores, falling, n ≥ count; count: `(…, 1)`.
    """
    edge = ranked.gather(-1, count - 1)
    is_above, is_edge = scores > edge, scores == edge
    room = count - is_above.sum(-1, keepdim=True)
    return logits.masked_fill(~(is_above | (is_edge & (is_edge.cumsum(-1) <= room))), -torch.inf)


def _exact(logits: Tensor) -> torch.dtype:
    """Give the type in which masses are summed: half types would lose the tail."""
    return torch.promote_types(logits.dtype, torch.float32)


def _probs(logits: Tensor) -> Tensor:
    return logits.softmax(-1, dtype=_exact(logits))
