"""A row as far as it is known: its leading logits after the score stages, and what is certain about all others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .chain import NamedFilter
from .leading import leading_ids
from .trace import Leading
from .unlisted import NOTHING, Tail, tail_of


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a row: the tokens that surely rank first, and what is certain about the others."""

    ids: Tensor  # (head,), highest score first, ties by id
    scores: Tensor  # (head,), float32, the sampler's own
    tail: Tail
    deviation: float | None  # of all scores that are not ruled out; None: not known


def known_row(leading: Leading, stages: Sequence[NamedFilter], vocab_size: int, *, is_last_apart: bool) -> Known:
    """Give what is known of a row after the score stages.

    is_last_apart: the last of the leading tokens stands there because it was chosen, and others that are not listed
    may rank above it. A token that is not listed can have any logit up to the highest possible one; what a stage does
    to it is seen by trying that one, as no stage turns two scores round.
    """
    ids = torch.tensor(list(leading.token_ids))
    logits = torch.tensor(list(leading.logits), dtype=torch.float32)
    tail = tail_of(leading, _peak(leading, logits[:-1] if is_last_apart else logits))
    rows = places = _tries(ids, logits, tail, vocab_size) if stages else torch.empty(0)
    is_listed = torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, ids, True)
    is_raised = False
    for _, apply in stages:
        after = apply(rows)
        is_raised |= bool((after[1:] > rows[1:])[:, ~is_listed].any())
        rows = after
    if torch.equal(rows, places):
        split = len(ids) - is_last_apart
        return Known(ids[:split], logits[:split], tail.joined(logits[split:]), leading.deviation)
    is_touched = (rows != places).any(0) & ~is_listed
    if tail is not NOTHING:
        num_same = vocab_size - len(ids) - int(is_touched.sum())
        tail = tail.changed(rows[1][is_touched], num_same, is_raised=is_raised)
    order = leading_ids(rows[0], len(ids))
    scores = rows[0][order]
    is_head = scores > tail.peak
    return Known(order[is_head], scores[is_head], tail.joined(scores[~is_head]), None)


def _tries(ids: Tensor, logits: Tensor, tail: Tail, vocab_size: int) -> Tensor:
    """Give rows `(3, vocab)` in which the tokens that are not listed are ruled out, at the peak, a little below it."""
    rows = torch.full((3, vocab_size), -math.inf)
    rows[1], rows[2] = tail.peak, tail.peak - 1
    rows[:, ids] = logits
    return rows


def _peak(leading: Leading, bounding: Tensor) -> float:
    """Give the highest logit that a token can have which is not listed, as a number of 32 bits."""
    if leading.num_others == 0:
        return -math.inf
    total = torch.tensor(leading.others_logsumexp, dtype=torch.float32)
    if float(total) < leading.others_logsumexp:
        total = total.nextafter(torch.tensor(math.inf))
    return float(torch.minimum(total, bounding[-1]) if len(bounding) else total)
