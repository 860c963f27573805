"""Mirostat 2: a cut-off that follows the text, so that its tokens surprise as much as is wanted.

The limit, in bits, starts at 2 · tau and belongs to one sequence. Source: Basu et al. 2021, "Mirostat: a neural text
decoding algorithm that directly controls perplexity", the second form.
"""

import math

import torch
from torch import Tensor

from .filters import apply_top_k


def apply_mirostat(logits: Tensor, limit: float | None) -> Tensor:
    """Drop tokens whose surprisal, −log₂ p, is above `limit` bits; the likeliest stays."""
    if limit is None:
        return logits
    logprobs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    is_kept = (-logprobs / math.log(2) <= limit) & (logits > -torch.inf)
    is_empty = ~is_kept.any(-1, keepdim=True)
    return torch.where(is_empty, apply_top_k(logits, 1), logits.masked_fill(~is_kept, -torch.inf))


def next_limit(limit: float, prob: float, *, tau: float, eta: float) -> float:
    """Give the limit after a token of a final probability `prob`; one that was dropped (0) leaves it as it was."""
    return limit - eta * (-math.log2(prob) - tau) if prob > 0 else limit
