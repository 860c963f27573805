"""Filters: pure functions from logits to logits, and the order in which they run.

Every filter takes logits `(…, vocab)` in float32 and returns the same shape; a dropped token has logit −inf. `None` and
the neutral value return the input itself. Each filter that works on probabilities takes the softmax of what the filters
before it left, so the survivors are renormalised between filters. Ties go to the lowest token id, on every device.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from .params import SamplingParams

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


def apply_logit_bias(logits: Tensor, bias: Mapping[int, float] | None) -> Tensor:
    """Add a number to the logits of single tokens; −inf bans a token."""
    if not bias:
        return logits
    ids = torch.tensor(list(bias), device=logits.device)
    return logits.index_add(-1, ids, _like(logits, list(bias.values()), len(ids)))


def apply_repetition_penalty(logits: Tensor, seen_ids: Sequence[int], penalty: float | None) -> Tensor:
    """Make tokens seen in prompt or output less likely: z·θ where z < 0, else z/θ; each id once, however often seen.

    Source: Keskar et al. 2019, "CTRL", with the sign rule of transformers.
    """
    if penalty is None or penalty == 1 or not seen_ids:
        return logits
    ids = torch.tensor(sorted(set(seen_ids)), device=logits.device)
    scores = logits.index_select(-1, ids)
    return logits.index_copy(-1, ids, torch.where(scores < 0, scores * penalty, scores / penalty))


def apply_frequency_penalty(logits: Tensor, output_ids: Sequence[int], penalty: float | None) -> Tensor:
    """Subtract `penalty` once for every time a token stands in the output. Source: the OpenAI API."""
    if not penalty or not output_ids:
        return logits
    ids = torch.tensor(output_ids, device=logits.device)
    return logits.index_add(-1, ids, _like(logits, [-penalty] * len(ids), len(ids)))


def apply_presence_penalty(logits: Tensor, output_ids: Sequence[int], penalty: float | None) -> Tensor:
    """Subtract `penalty` from every token that stands in the output. Source: the OpenAI API."""
    return apply_frequency_penalty(logits, sorted(set(output_ids)), penalty)


def apply_no_repeat_ngram(logits: Tensor, seen_ids: Sequence[int], size: int | None) -> Tensor:
    """Drop every token that would complete an n-gram of `size` tokens that already stands in prompt or output."""
    if not size or len(seen_ids) < size:
        return logits
    ids = torch.tensor(seen_ids, device=logits.device)
    grams = ids.unfold(0, size, 1)  # (places, size)
    is_same_start = (grams[:, :-1] == ids[len(ids) - size + 1 :]).all(-1)
    return logits.index_fill(-1, grams[is_same_start, -1], -torch.inf)


def apply_temperature(logits: Tensor, temperature: float | None) -> Tensor:
    """Divide by the temperature: below 1 sharpens the distribution, above 1 flattens it; 0 leaves the likeliest token.

    Source: Ackley, Hinton and Sejnowski 1985, "A learning algorithm for Boltzmann machines".
    """
    if temperature is None or temperature == 1:
        return logits
    if temperature == 0:
        return apply_top_k(logits, 1)
    if temperature < 0.01:  # a plain quotient could overflow; the softmax is the same from any origin
        logits, temperature = logits - logits.amax(-1, keepdim=True), max(temperature, 1e-30)
    return logits / temperature


def apply_top_k(logits: Tensor, k: int | None) -> Tensor:
    """Keep exactly the min(k, vocab) likeliest tokens.

    Source: Fan et al. 2018, "Hierarchical neural story generation".
    """
    if not k or k >= logits.shape[-1]:
        return logits
    ranked = logits.topk(k, dim=-1).values
    return _keep_leading(logits, ranked, torch.full_like(ranked[..., :1], k, dtype=torch.long))


def apply_top_p(logits: Tensor, p: float | None) -> Tensor:
    """Keep a token while the mass ranked above it is below `p`: the token that crosses `p` stays.

    Source: Holtzman et al. 2020, "The curious case of neural text degeneration".
    """
    if p is None or p >= 1:
        return logits
    probs = logits.softmax(-1)
    vocab = logits.shape[-1]
    for size in (*HEADS, vocab):
        ranked, ids = logits.topk(min(size, vocab), dim=-1)
        mass = probs.gather(-1, ids).double()
        count = (mass.cumsum(-1) - mass < p).sum(-1, keepdim=True).clamp(min=1)
        if size >= vocab or bool((count < size).all()):  # the crossing lies within
            break
    return _keep_leading(logits, ranked, count)


def apply_min_p(logits: Tensor, min_p: float | None) -> Tensor:
    """Drop tokens less likely than `min_p` times the likeliest one. Source: Nguyen et al. 2024, "Min-p sampling"."""
    if not min_p:
        return logits
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < min_p * probs.amax(-1, keepdim=True), -torch.inf)


def apply_typical_p(logits: Tensor, mass: float | None) -> Tensor:
    """Keep the tokens whose surprisal is nearest the entropy until their mass reaches `mass`; may drop the likeliest.

    Source: Meister et al. 2023, "Locally typical sampling".
    """
    if mass is None or mass >= 1:
        return logits
    logprobs = logits.log_softmax(-1)
    probs = logprobs.exp()
    entropy = -(probs * logprobs).nan_to_num(0.0).sum(-1, keepdim=True)  # (…, 1), nats
    ids = (-logprobs - entropy).abs().sort(dim=-1, stable=True).indices
    ranked = probs.gather(-1, ids).double()
    is_reached = ranked.cumsum(-1) - ranked >= mass  # the mass was reached before this token
    return logits.masked_fill(is_reached.scatter(-1, ids, is_reached), -torch.inf)


def leading_ids(scores: Tensor, count: int) -> Tensor:
    """Give the ids of the `count` highest finite scores of one row `(vocab,)`, in order, ties by id; or fewer."""
    edge = scores.topk(min(count, scores.shape[-1])).values[-1]
    ids = ((scores >= edge) & (scores > -math.inf)).nonzero().flatten()  # ascending ids, all ties at the edge
    return ids[scores[ids].sort(descending=True, stable=True).indices[:count]]


def _keep_leading(logits: Tensor, ranked: Tensor, count: Tensor) -> Tensor:
    """Keep exactly `count` tokens a row, ties by id. ranked: `(…, n)` falling logits, n ≥ count; count: `(…, 1)`."""
    edge = ranked.gather(-1, count - 1)
    is_above, is_edge = logits > edge, logits == edge
    room = count - is_above.sum(-1, keepdim=True)
    return logits.masked_fill(~(is_above | (is_edge & (is_edge.cumsum(-1) <= room))), -torch.inf)


def _like(logits: Tensor, values: Sequence[float], size: int) -> Tensor:
    """Give `values` as a tensor that can be added to `size` tokens of every row."""
    return torch.tensor(values, dtype=logits.dtype, device=logits.device).expand(*logits.shape[:-1], size)
