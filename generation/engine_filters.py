"""Filters by the rules of other engines, where those differ from the ones in filters.py and cutoffs.py.

As there, logits are `(…, vocab)` in float32, a dropped token has −inf, and a neutral value returns the input.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .filters import apply_top_k, apply_top_p, apply_typical_p, logprobs_of, probs_of, typicality
from .ranges import RANGES


def apply_top_k_with_ties(logits: Tensor, k: int | None) -> Tensor:
    """Keep the k likeliest tokens and every token that ties with the last of them. Source: transformers and vLLM."""
    kept = apply_top_k(logits, k)
    if kept is logits:
        return logits
    edge = kept.masked_fill(kept == -torch.inf, torch.inf).amin(-1, keepdim=True)
    return logits.masked_fill(logits < edge, -torch.inf)


def apply_top_p_by_last_id(logits: Tensor, p: float | None) -> Tensor:
    """Keep the same mass as apply_top_p, but of tokens that tie the highest ids first.

    Source: transformers, vLLM and mlx-lm, which drop from the lower end of an ascending sort. It is a stable one here;
    PyTorch's own leaves open which of several tied tokens stay.
    """
    return logits if p is None or p >= 1 else apply_top_p(logits.flip(-1), p).flip(-1)


def apply_typical_p_with_ties(logits: Tensor, mass: float | None) -> Tensor:
    """Keep what apply_typical_p keeps, and every token that is as typical as the last of it. Source: transformers."""
    if mass is None or mass >= 1:
        return logits
    is_kept = apply_typical_p(logits, mass) > -torch.inf
    nearness = typicality(logprobs_of(logits))
    edge = nearness.masked_fill(~is_kept, torch.inf).amin(-1, keepdim=True)
    return logits.masked_fill(nearness < edge, -torch.inf)


def apply_typical_p_beyond(logits: Tensor, mass: float | None) -> Tensor:
    """Keep the most typical tokens until their mass is above `mass`: reaching it is not enough. Source: llama.cpp."""
    return apply_typical_p(logits, None if mass is None else math.nextafter(mass, math.inf))


def apply_min_p_by_score(logits: Tensor, min_p: float | None) -> Tensor:
    """Drop tokens whose logit is below the highest + ln min_p: min_p without a softmax. Source: llama.cpp, mlx-lm."""
    if not min_p:
        return logits
    least = logits.amax(-1, keepdim=True) + math.log(RANGES["min_p"].check("min_p", min_p))
    return logits.masked_fill(logits < least, -torch.inf)


def apply_xtc_above(logits: Tensor, threshold: float | None, exempt_ids: Sequence[int] = ()) -> Tensor:
    """Drop every token that is likelier than the least likely one above `threshold`; ties of that one stay.

    exempt_ids: tokens that are never dropped. Source: mlx-lm.
    """
    if threshold is None:
        return logits
    threshold = RANGES["xtc_threshold"].check("xtc_threshold", threshold)
    probs = probs_of(logits)
    least = probs.masked_fill(probs <= threshold, torch.inf).amin(-1, keepdim=True)
    is_dropped = probs > least
    ids = [token_id for token_id in exempt_ids if token_id < logits.shape[-1]]
    if ids:
        is_dropped = is_dropped.index_fill(-1, torch.tensor(ids, device=logits.device), False)
    return logits.masked_fill(is_dropped, -torch.inf)
