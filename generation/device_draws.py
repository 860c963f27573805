"""Draws for many rows at once, on the device that has their logits: whole tensors, and no number asked for.

What temperature, top_k, top_p and min_p keep of a row is a beginning of its ranking, as in shortlist.py; here a full
sort settles every row alike. Shapes do not depend on numbers, so that a graph can hold the work.
"""

import math

import torch
from torch import Tensor

from .filters import LEAST_DIVISOR
from .ranges import LEAST_TEMPERATURE

SETTINGS = 5  # a row's numbers, float64: temperature, top_k, top_p, min_p, and the uniform number of the step
ID, PROB, LOGIT, LOGPROB, RANK, ENTROPY = range(6)  # the columns of what comes out; the last three are measures


def draws(logits: Tensor, settings: Tensor, *, are_greedy: bool, are_measured: bool) -> Tensor:
    """Draw a token for each row: `(rows, 3)`, float64, the id, its final probability and its logit.

    logits: `(rows, vocab)`; settings: `(rows, SETTINGS)`; are_greedy: whether every temperature is 0. Where they are
    measured, three more columns: the raw log-probability, its rank from 1, and the entropy of the row in bits.
    The logit of a row that a draw must refuse is NaN.
    """
    raw = logits.float()
    ids, probs = _likeliest(raw) if are_greedy else _drawn(raw, settings)
    chosen = _at(raw, ids)
    columns = [ids, probs, chosen.masked_fill(~raw.amax(-1).isfinite(), torch.nan)]
    if are_measured:
        columns += _measures(raw, ids, chosen)
    return torch.stack([each.double() for each in columns], dim=-1)


def _likeliest(raw: Tensor) -> tuple[Tensor, Tensor]:
    ids = raw.argmax(-1)  # of several the lowest
    return ids, torch.ones_like(ids)


def _drawn(raw: Tensor, settings: Tensor) -> tuple[Tensor, Tensor]:
    """Give the ids `(rows,)` and their probabilities among what the filters leave."""
    temperature, top_k, top_p, min_p, u = settings.unbind(-1)
    scores, ids = _heated(raw, temperature).sort(dim=-1, descending=True, stable=True)  # ties: lowest id first
    weights = (scores - scores[:, :1]).exp().double()  # the first weighs 1
    running = weights.cumsum(-1)  # what the leading tokens weigh, (rows, vocab)
    left = (scores > -torch.inf).sum(-1).clamp(min=1)
    left = torch.where(top_k > 0, torch.minimum(left, top_k.long().clamp(min=1)), left)
    mass = top_p * _at(running, left - 1)
    crossing = (running - weights < mass[:, None]).sum(-1).clamp(min=1)
    left = torch.where(top_p < 1, torch.minimum(left, crossing), left)
    near = (weights >= min_p.float()[:, None]).sum(-1).clamp(min=1)
    left = torch.where(min_p > 0, torch.minimum(left, near), left)
    whole = _at(running, left - 1)
    place = torch.minimum((running <= (u * whole)[:, None]).sum(-1), left - 1)
    is_greedy = temperature == 0
    place = place.masked_fill(is_greedy, 0)
    prob = (_at(weights, place) / whole).masked_fill(is_greedy, 1)
    return _at(ids, place), prob


def _heated(raw: Tensor, temperature: Tensor) -> Tensor:
    """Divide each row by its temperature, as `apply_temperature` does; one of 0 changes nothing."""
    most, highest = torch.finfo(raw.dtype), raw.amax(-1, keepdim=True)
    divisor = torch.where(temperature > 0, temperature, 1)[:, None]
    is_far = (divisor < LEAST_DIVISOR) | (highest.abs() > most.max * divisor.clamp(max=1))
    shifted = torch.where(is_far, raw - highest.clamp(min=most.min), raw)  # a quotient of at most 0 is safe
    divisor = torch.where(is_far, divisor.clamp(min=LEAST_TEMPERATURE), divisor)
    return shifted / divisor.float() + 0.0  # −0.0 becomes 0.0, with which it ties


def _measures(raw: Tensor, ids: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give the log-probability, rank and entropy `(rows,)`, of sums in float64."""
    is_left, highest = raw > -torch.inf, raw.amax(-1, keepdim=True).double()
    gaps = torch.where(is_left, highest - raw, 0)
    weights = torch.where(is_left, (-gaps).exp(), 0)
    total = weights.sum(-1)
    log_total = total.log()
    entropy = (log_total + (weights * gaps).sum(-1) / total).clamp(min=0) / math.log(2)
    is_before = torch.arange(raw.shape[-1], device=raw.device) < ids[:, None]
    is_above = (raw > chosen[:, None]) | ((raw == chosen[:, None]) & is_before)
    return chosen - highest[:, 0] - log_total, 1 + is_above.sum(-1), entropy


def _at(rows: Tensor, places: Tensor) -> Tensor:
    """Give one number of each row, `(rows,)`."""
    return rows.gather(-1, places[:, None])[:, 0]
