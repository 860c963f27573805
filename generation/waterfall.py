"""The waterfall: what each stage of the chain left of a step's distribution.

The rows are the chain's own, in float32; sums over them are in float64. Once few tokens are left, only those are read.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .trace import Stage
from .weights import FAR, PIECE, Scores, gaps_below, weights_of

FEW = 8  # a row with at most one token in this many left is read token by token


@dataclass(frozen=True, slots=True)
class Remains:
    """What a stage left: a whole row or, where `ids` is given, those tokens alone."""

    ids: NDArray[np.int64] | None  # rising
    scores: Scores  # (vocab,) or (ids,)
    count: int  # of tokens that are not dropped
    highest: float
    total: float  # of the weights
    mean_gap: float

    @property
    def entropy(self) -> float:
        """In bits."""
        return max(0.0, (math.log(self.total) + self.mean_gap) / math.log(2))


def waterfall(token_id: int, rows: Sequence[tuple[str, Tensor]], raw: Remains) -> tuple[Stage, ...]:
    """Give one Stage a row, in order, with the chosen token's probability and rank in each.

    rows: `(vocab,)` after each stage, named, the model's own logits first; none of them drops the chosen token.
    raw: what `read` gives of the first.
    """
    name, row_before = rows[0]
    stages, left = [_stage(name, 0.0, token_id, float(row_before[token_id]), raw)], raw
    for name, row in rows[1:]:
        if row is row_before:  # the stage found nothing to do
            stages.append(replace(stages[-1], name=name, mass_removed=0.0))
            continue
        before, left = left, read(row.numpy(), left)
        stages.append(_stage(name, _mass_removed(before, left), token_id, float(row[token_id]), left))
        row_before = row
    return tuple(stages)


def read(row: Scores, before: Remains | None = None) -> Remains:
    """Read a row `(vocab,)`; what was left before it says which tokens can be left at all."""
    ids = before.ids if before is not None else None
    scores = row if ids is None else row[ids]
    count = len(scores)
    if scores.min() == -np.inf:
        is_left = scores > -np.inf
        count = int(np.count_nonzero(is_left))
    if count < len(scores) and (ids is not None or count * FEW <= len(row)):
        places = np.flatnonzero(is_left)
        ids, scores = places if ids is None else ids[places], scores[places]
    highest, total, gaps = float(scores.max()), 0.0, 0.0
    for start in range(0, len(scores), PIECE):
        exponents = np.subtract(scores[start : start + PIECE], highest, dtype=np.float64)  # at most 0
        if count < len(scores):
            np.maximum(exponents, -FAR, out=exponents)
        weights = np.exp(exponents)
        total, gaps = total + float(weights.sum()), gaps - float(weights.dot(exponents))
    return Remains(ids, scores, count, highest, total, gaps / total)


def _mass_removed(before: Remains, left: Remains) -> float:
    """Give the probability, before a stage, of what it dropped."""
    if left.count == before.count:
        return 0.0
    if left.ids is None:
        kept = np.where(left.scores > -np.inf, before.scores, np.float32(-np.inf))
    else:
        kept = before.scores[left.ids if before.ids is None else np.searchsorted(before.ids, left.ids)]
    weights = (weights_of(gaps_below(before.highest, kept[i : i + PIECE])) for i in range(0, len(kept), PIECE))
    return max(0.0, 1 - sum(float(part.sum()) for part in weights) / before.total)


def _stage(name: str, mass_removed: float, token_id: int, score: float, left: Remains) -> Stage:
    if left.ids is None:
        num_ties = np.count_nonzero(left.scores[:token_id] == score)
    else:
        num_ties = np.count_nonzero(left.scores[left.ids < token_id] == score)
    return Stage(
        name=name,
        tokens_left=left.count,
        mass_removed=mass_removed,
        entropy=left.entropy,
        prob=math.exp(score - left.highest) / left.total,
        rank=1 + int(np.count_nonzero(left.scores > score)) + int(num_ties),
    )
