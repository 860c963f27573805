"""Cut-offs: filters that drop tokens on one side of a line, drawn by a spread, a probability or a surprisal.

As in filters.py, logits are `(…, vocab)` in float32, a dropped token has −inf, and a neutral value returns the input.
"""

import math

import torch
from torch import Tensor

from .filters import apply_top_k, entropy_of, logprobs_of, probs_of
from .ranges import RANGES


def apply_top_n_sigma(logits: Tensor, n: float | None) -> Tensor:
    """Drop what lies more than `n` standard deviations of the logits (those not yet dropped) below the highest.

    Which tokens stay does not depend on a temperature that comes later. Source: Tang et al. 2024, "Top-nσ".
    """
    if not n:
        return logits
    n = RANGES["top_n_sigma"].check("top_n_sigma", n)
    is_gone = logits == -torch.inf
    count = (~is_gone).sum(-1, keepdim=True).clamp(min=1)
    scores = logits.double().masked_fill(is_gone, 0.0)
    mean = scores.sum(-1, keepdim=True) / count
    deviation = ((scores - mean).square().masked_fill(is_gone, 0.0).sum(-1, keepdim=True) / count).sqrt()
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) - n * deviation, -torch.inf)


def apply_epsilon_cutoff(logits: Tensor, epsilon: float | None) -> Tensor:
    """Drop tokens less likely than `epsilon`; the likeliest stays.

    Source: Hewitt et al. 2022, "Truncation sampling as language model desmoothing".
    """
    if not epsilon:
        return logits
    epsilon = RANGES["epsilon_cutoff"].check("epsilon_cutoff", epsilon)
    return _cut(logits, probs_of(logits) < epsilon)


def apply_eta_cutoff(logits: Tensor, epsilon: float | None) -> Tensor:
    """Drop tokens less likely than min(ε, √ε · e^−H), H the entropy in nats; the likeliest stays.

    Source: Hewitt et al. 2022, as apply_epsilon_cutoff.
    """
    if not epsilon:
        return logits
    epsilon = RANGES["eta_cutoff"].check("eta_cutoff", epsilon)
    logprobs = logprobs_of(logits)
    eta = (math.sqrt(epsilon) * (-entropy_of(logprobs)).exp()).clamp(max=epsilon)
    return _cut(logits, probs_of(logits) < eta)


def apply_xtc(logits: Tensor, threshold: float | None) -> Tensor:
    """Drop every token of a probability of `threshold` or more, but the last of them by rank; ties by id.

    A single likely token stays, so a threshold above 0.5 changes nothing, and no token is exempt. Whether this is
    done at a step is a coin of xtc_probability, which the sampler throws.
    Source: p-e-w 2024, "Exclude top choices", in the form of llama.cpp.
    """
    if threshold is None or threshold > 0.5:
        return logits
    threshold = RANGES["xtc_threshold"].check("xtc_threshold", threshold)
    probs = probs_of(logits)
    is_likely = (probs >= threshold) & (logits > -torch.inf)
    least = logits.masked_fill(~is_likely, torch.inf).amin(-1, keepdim=True)
    is_least = is_likely & (logits == least)
    is_last = is_least & (is_least.cumsum(-1) == is_least.sum(-1, keepdim=True))
    return logits.masked_fill(is_likely & ~is_last, -torch.inf)


def apply_mirostat(logits: Tensor, limit: float | None) -> Tensor:
    """Drop tokens whose surprisal, −log₂ p, is above `limit` bits; the likeliest stays.

    Mirostat 2 moves the limit with the text, so that its tokens surprise as much as is wanted: see next_limit.
    Source: Basu et al. 2021, "Mirostat: a neural text decoding algorithm that directly controls perplexity",
    the second form.
    """
    if limit is None:
        return logits
    logprobs = logprobs_of(logits)
    is_kept = (-logprobs / math.log(2) <= limit) & (logits > -torch.inf)
    is_empty = ~is_kept.any(-1, keepdim=True)
    return torch.where(is_empty, apply_top_k(logits, 1), logits.masked_fill(~is_kept, -torch.inf))


def next_limit(limit: float, prob: float, *, tau: float, eta: float) -> float:
    """Give mirostat's limit after a token of a final probability `prob`; one that was dropped (0) leaves it as it was.

    In bits; it starts at 2 · tau and belongs to one sequence.
    """
    return limit - eta * (-math.log2(prob) - tau) if prob > 0 else limit


def _cut(logits: Tensor, is_unlikely: Tensor) -> Tensor:
    """Drop tokens, but never the likeliest or its equals."""
    return logits.masked_fill(is_unlikely & (logits < logits.amax(-1, keepdim=True)), -torch.inf)
