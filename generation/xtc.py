"""XTC, "exclude top choices": now and then the likely tokens give way to the least likely among them."""

import torch
from torch import Tensor

from .ranges import RANGES


def apply_xtc(logits: Tensor, threshold: float | None) -> Tensor:
    """Drop every token of a probability of `threshold` or more, but the last of them by rank; ties by id.

    A single likely token stays, so a threshold above 0.5 changes nothing, and no token is exempt. Whether this is
    done at a step is a coin of xtc_probability, which the sampler throws.
    Source: p-e-w 2024, "Exclude top choices", in the form of llama.cpp.
    """
    if threshold is None or threshold > 0.5:
        return logits
    threshold = RANGES["xtc_threshold"].check("xtc_threshold", threshold)
    probs = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    is_likely = (probs >= threshold) & (logits > -torch.inf)
    least = logits.masked_fill(~is_likely, torch.inf).amin(-1, keepdim=True)
    is_least = is_likely & (logits == least)
    is_last = is_least & (is_least.cumsum(-1) == is_least.sum(-1, keepdim=True))
    return logits.masked_fill(is_likely & ~is_last, -torch.inf)
