"""Filters that shape the distribution: pure functions from logits to logits.

Every filter takes logits `(…, vocab)` in float32 and returns the same shape; a dropped token has logit −inf. `None` and
the neutral value return the input itself. Each filter that works on probabilities takes the softmax of what the filters
before it left, so the survivors are renormalised between filters. Ties go to the lowest token id, on every device.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .leading import leading_ids
from .ranges import LEAST_TEMPERATURE, RANGES, Range
from .row_probs import probs_of_row

# A full sort of the vocabulary is slow: the leading few hundred settle nearly every row; only a flat row needs more.
HEADS = (256, 2048)
LEAST_DIVISOR = 0.01  # below it a temperature divides what was made safe to divide


def apply_temperature(logits: Tensor, temperature: float | None) -> Tensor:
    """Divide by the temperature: below 1 sharpens the distribution, above 1 flattens it; 0 leaves the likeliest token.

    Source: Ackley, Hinton and Sejnowski 1985, "A learning algorithm for Boltzmann machines".
    """
    if temperature is None or temperature == 1:
        return logits
    temperature = Range(float, 0).check("temperature", temperature)
    if temperature == 0:
        return apply_top_k(logits, 1)
    if _is_row(logits) and (quotient := _quotient(logits.numpy(), temperature)) is not None:
        return torch.from_numpy(quotient)
    limits, highest = torch.finfo(logits.dtype), logits.amax(-1, keepdim=True)
    most = limits.max * float(
        torch.tensor(temperature, dtype=logits.dtype)
    )  # that can be divided by it as it is rounded
    is_large = (highest.abs() >= most) | (temperature < LEAST_DIVISOR)
    if temperature < 1 and bool(is_large.any()):
        highest = highest.clamp(min=limits.min)  # a row of nothing but −inf stays as it is
        logits = logits - torch.where(is_large, highest, 0.0)  # a quotient of at most 0 is safe
        temperature = max(temperature, LEAST_TEMPERATURE)
    return logits / temperature


def has_quotients(row: NDArray[np.float32], temperature: float) -> bool:
    """Tell whether each of a row's scores can be divided by a temperature, and none is −inf."""
    most = _most_divided(temperature)
    return -most <= float(row.min()) and float(row.max()) <= most


def _most_divided(temperature: float) -> float:
    """Give the largest score that can be divided by a temperature; a negative number where none is to be."""
    most = float(np.finfo(np.float32).max) * min(float(np.float32(temperature)), 1.0)
    return most if temperature >= LEAST_DIVISOR else -1.0


def _quotient(row: NDArray[np.float32], temperature: float) -> NDArray[np.float32] | None:
    """Divide a row by a temperature; None where that could be too large a number. In numpy, which is quicker at one."""
    if abs(float(row.max())) > _most_divided(temperature):
        return None
    with np.errstate(over="ignore"):  # far below the highest, where it is −inf then
        return row / np.float32(temperature)


def apply_dynatemp(logits: Tensor, temperature: float, spread: float | None, exponent: float = 1.0) -> Tensor:
    """Divide by temperature − spread where the model is sure, up to temperature + spread where it is not.

    T = low + (high − low) · (H / ln n)^exponent, with low = max(0, temperature − spread), high = temperature + spread,
    n the tokens that are left and H their entropy in nats; a single token stays as it is. Source: llama.cpp, after
    KoboldCpp.
    """
    if not spread:
        return apply_temperature(logits, temperature)
    temperature = RANGES["temperature"].check("temperature", temperature)
    spread = RANGES["dynatemp_range"].check("dynatemp_range", spread)
    exponent = RANGES["dynatemp_exponent"].check("dynatemp_exponent", exponent)
    num_left = (logits > -torch.inf).sum(-1, keepdim=True)
    most = num_left.clamp(min=2).log()  # (…, 1), nats: the entropy of so many equal ones
    share = (entropy_of(logprobs_of(logits)) / most).clamp(0, 1)
    low, high = max(0.0, temperature - spread), temperature + spread
    divisor = low + (high - low) * share**exponent
    limits, highest = torch.finfo(logits.dtype), logits.amax(-1, keepdim=True)
    is_large = (divisor < LEAST_DIVISOR) | (highest.abs() > limits.max * divisor)
    shifted = logits - torch.where(is_large, highest.clamp(min=limits.min), 0.0)  # as in apply_temperature
    divided = torch.where(divisor > 0, shifted / divisor.clamp(min=LEAST_TEMPERATURE), apply_top_k(logits, 1))
    return torch.where(num_left > 1, divided.to(logits.dtype), logits)


def apply_top_k(logits: Tensor, k: int | None) -> Tensor:
    """Keep exactly the min(k, vocab) likeliest tokens.

    Source: Fan et al. 2018, "Hierarchical neural story generation".
    """
    k = int(RANGES["top_k"].check("top_k", k or 0))
    if k == 0 or k >= logits.shape[-1]:
        return logits
    if _is_row(logits):
        return _only(logits, leading_ids(logits, k))
    ranked = logits.topk(k, dim=-1).values
    return _keep_leading(logits, logits, ranked, torch.full_like(ranked[..., :1], k, dtype=torch.long))


def apply_top_p(logits: Tensor, p: float | None) -> Tensor:
    """Keep a token while the mass ranked above it is below `p`: the token that crosses `p` stays.

    Source: Holtzman et al. 2020, "The curious case of neural text degeneration".
    """
    if p is None or p >= 1:
        return logits
    probs = torch.from_numpy(probs_of_row(logits.numpy())) if _is_row(logits) else probs_of(logits)
    return _keep_mass(logits, logits, probs, p)


def apply_min_p(logits: Tensor, min_p: float | None) -> Tensor:
    """Drop tokens less likely than `min_p` times the likeliest one. Source: Nguyen et al. 2024, "Min-p sampling"."""
    if not min_p:
        return logits
    min_p = RANGES["min_p"].check("min_p", min_p)
    probs = probs_of(logits)
    return logits.masked_fill(probs < min_p * probs.amax(-1, keepdim=True), -torch.inf)


def apply_typical_p(logits: Tensor, mass: float | None) -> Tensor:
    """Keep the tokens whose surprisal is nearest the entropy until their mass reaches `mass`; may drop the likeliest.

    Source: Meister et al. 2023, "Locally typical sampling".
    """
    if mass is None or mass >= 1:
        return logits
    mass = RANGES["typical_p"].check("typical_p", mass)
    logprobs = logprobs_of(logits)
    return _keep_mass(logits, typicality(logprobs), logprobs.exp(), mass)


def typicality(logprobs: Tensor) -> Tensor:
    """Give how near each token's surprisal is to the entropy: −|−ln p − H|, in nats."""
    return -(-logprobs - entropy_of(logprobs)).abs()


def _keep_mass(logits: Tensor, scores: Tensor, probs: Tensor, mass: float) -> Tensor:
    """Keep a token while the probability of those with higher scores is below `mass`; one at least."""
    vocab = logits.shape[-1]
    if _is_row(scores):
        return _only(logits, _reaching(scores, probs, mass))
    for size in (*HEADS, vocab):
        ranked, ids = scores.topk(min(size, vocab), dim=-1)
        reached = probs.gather(-1, ids).double()
        count = (reached.cumsum(-1) - reached < mass).sum(-1, keepdim=True).clamp(min=1)
        if size >= vocab or bool((count < size).all()):  # the crossing lies within
            break
    return _keep_leading(logits, scores, ranked, count)


def _reaching(scores: Tensor, probs: Tensor, mass: float) -> Tensor:
    """Give the ids of the leading tokens of one row `(vocab,)` whose probabilities reach `mass`, in order."""
    for size in (*HEADS, len(scores)):
        ids = leading_ids(scores, size)
        reached = probs[ids].double()
        count = max(1, int((reached.cumsum(0) - reached < mass).sum()))
        if count < len(ids):  # the crossing lies within
            break
    return ids[:count]


def _is_row(scores: Tensor) -> bool:
    """Whether these are the scores of one step, as the sampler has them: there is a faster way for those."""
    return (
        scores.dim() == 1 and (scores.dtype, scores.device.type) == (torch.float32, "cpu") and not scores.requires_grad
    )


def _only(logits: Tensor, ids: Tensor) -> Tensor:
    """Drop all other tokens of one row `(vocab,)`."""
    if not _is_row(logits):
        return torch.full_like(logits, -torch.inf).index_copy_(0, ids, logits[ids])
    kept, row = np.full(len(logits), -np.inf, np.float32), logits.numpy()  # torch would start threads for that
    kept[ids.numpy()] = row[ids.numpy()]
    return torch.from_numpy(kept)


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


def probs_of(logits: Tensor) -> Tensor:
    """Give the probabilities of each row, `(…, vocab)`."""
    return logits.softmax(-1, dtype=_exact(logits))


def logprobs_of(logits: Tensor) -> Tensor:
    """Give the natural logs of the probabilities of each row, `(…, vocab)`."""
    return logits.log_softmax(-1, dtype=_exact(logits))


def entropy_of(logprobs: Tensor) -> Tensor:
    """Give the entropy of each row, `(…, 1)`, in nats."""
    return -(logprobs.exp() * logprobs).nan_to_num(0.0).sum(-1, keepdim=True)
