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
from .weights import PIECE, Scores, gaps_below, moments, weights_of

FEW = 8  # a row with at most one token in this many left is read token by token


@dataclass(frozen=True, slots=True)
class _Remains:
    """What a stage left: a whole row or, where `ids` is given, those tokens alone."""

    ids: NDArray[np.int64] | None  # rising
    scores: Scores  # (vocab,) or (ids,)
    count: int  # of tokens that are not dropped
    highest: float
    total: float  # of the weights
    mean_gap: float


def waterfall(token_id: int, rows: Sequence[tuple[str, Tensor]]) -> tuple[Stage, ...]:
    """Give one Stage a row, in order, with the chosen token's probability and rank in each.

    rows: `(vocab,)` after each stage, named, the model's own logits first; none of them drops the chosen token.
    """
    stages: list[Stage] = []
    left: _Remains | None = None
    row_before: Tensor | None = None
    for name, row in rows:
        if row is row_before:  # the stage found nothing to do
            stages.append(replace(stages[-1], name=name, mass_removed=0.0))
            continue
        before, left = left, _read(row.numpy(), left)
        mass_removed = 0.0 if before is None else _mass_removed(before, left)
        stages.append(_stage(name, mass_removed, token_id, float(row[token_id]), left))
        row_before = row
    return tuple(stages)


def _read(row: Scores, before: _Remains | None) -> _Remains:
    ids = before.ids if before is not None else None
    scores = row if ids is None else row[ids]
    is_left = scores > -np.inf
    count = int(np.count_nonzero(is_left))
    if count < len(scores) and (ids is not None or count * FEW <= len(row)):
        places = np.flatnonzero(is_left)
        ids, scores = places if ids is None else ids[places], scores[places]
    highest, total, gaps = float(scores.max()), 0.0, 0.0
    for start in range(0, len(scores), PIECE):
        piece_total, piece_gaps = moments(gaps_below(highest, scores[start : start + PIECE]))
        total, gaps = total + piece_total, gaps + piece_gaps
    return _Remains(ids, scores, count, highest, total, gaps / total)


def _mass_removed(before: _Remains, left: _Remains) -> float:
    """Give the probability, before a stage, of what it dropped."""
    if left.count == before.count:
        return 0.0
    if left.ids is None:
        kept = np.where(left.scores > -np.inf, before.scores, np.float32(-np.inf))
    else:
        kept = before.scores[left.ids if before.ids is None else np.searchsorted(before.ids, left.ids)]
    weights = (weights_of(gaps_below(before.highest, kept[i : i + PIECE])) for i in range(0, len(kept), PIECE))
    return max(0.0, 1 - sum(float(part.sum()) for part in weights) / before.total)


def _stage(name: str, mass_removed: float, token_id: int, score: float, left: _Remains) -> Stage:
    if left.ids is None:
        num_ties = np.count_nonzero(left.scores[:token_id] == score)
    else:
        num_ties = np.count_nonzero(left.scores[left.ids < token_id] == score)
    return Stage(
        name=name,
        tokens_left=left.count,
        mass_removed=mass_removed,
        entropy=max(0.0, (math.log(left.total) + left.mean_gap) / math.log(2)),
        prob=math.exp(score - left.highest) / left.total,
        rank=1 + int(np.count_nonzero(left.scores > score)) + int(num_ties),
    )
