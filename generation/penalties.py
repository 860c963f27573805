"""Filters that change single scores: bias and bans, and penalties for what was there before.

As in filters.py, logits are `(…, vocab)` in float32, a dropped token has −inf, and a neutral value returns the input.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .errors import ParameterError
from .ranges import RANGES


def apply_logit_bias(logits: Tensor, bias: Mapping[int, float] | None) -> Tensor:
    """Add a number to the logits of single tokens; −inf bans a token."""
    if not bias:
        return logits
    vocab = logits.shape[-1]
    if max(bias) >= vocab:
        raise ParameterError("logit_bias", max(bias), f"for token ids from 0 to {vocab - 1}")
    ids = torch.tensor(list(bias), device=logits.device)
    most = torch.finfo(logits.dtype).max
    values = [min(value, most) for value in bias.values()]
    return logits.index_add(-1, ids, _like(logits, values, len(ids))).clamp(max=most)


def apply_repetition_penalty(logits: Tensor, seen_ids: Sequence[int], penalty: float | None) -> Tensor:
    """Make tokens seen in prompt or output less likely: z·θ where z < 0, else z/θ; each id once, however often seen.

    Source: Keskar et al. 2019, "CTRL", with the sign rule of transformers.
    """
    if penalty is None or penalty == 1 or len(seen_ids) == 0:
        return logits
    ids = torch.tensor(_distinct(seen_ids), device=logits.device)
    limits = torch.finfo(logits.dtype)
    penalty = max(RANGES["repetition_penalty"].check("repetition_penalty", penalty), limits.tiny)
    scores = logits.index_select(-1, ids)
    return logits.index_copy(-1, ids, torch.where(scores < 0, scores * penalty, scores / penalty).clamp(max=limits.max))


def apply_frequency_penalty(logits: Tensor, output_ids: Sequence[int], penalty: float | None) -> Tensor:
    """Subtract `penalty` once for every time a token stands in the output. Source: the OpenAI API."""
    if not penalty or len(output_ids) == 0:
        return logits
    ids = torch.as_tensor(output_ids, device=logits.device)
    return logits.index_add(-1, ids, _like(logits, [-penalty] * len(ids), len(ids)))


def apply_presence_penalty(logits: Tensor, output_ids: Sequence[int], penalty: float | None) -> Tensor:
    """Subtract `penalty` from every token that stands in the output. Source: the OpenAI API."""
    return apply_frequency_penalty(logits, _distinct(output_ids), penalty)


def apply_no_repeat_ngram(logits: Tensor, seen_ids: Sequence[int], size: int | None) -> Tensor:
    """Drop every token that would complete an n-gram of `size` tokens that already stands in prompt or output."""
    if not size or len(seen_ids) < size:
        return logits
    ids = torch.as_tensor(seen_ids, device=logits.device)
    grams = ids.unfold(0, size, 1)  # (places, size)
    is_same_start = (grams[:, :-1] == ids[len(ids) - size + 1 :]).all(-1)
    return logits.index_fill(-1, grams[is_same_start, -1], -torch.inf)


def _distinct(ids: Sequence[int]) -> list[int]:
    """Give the ids of a list or a tensor once each."""
    return sorted(set(torch.as_tensor(ids).tolist()))


def _like(logits: Tensor, values: Sequence[float], size: int) -> Tensor:
    """Give `values` as a tensor that can be added to `size` tokens of every row."""
    return torch.tensor(values, dtype=logits.dtype, device=logits.device).expand(*logits.shape[:-1], size)
