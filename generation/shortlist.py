"""What temperature, top_k, top_p and min_p leave of one row, and the token that a number picks of it.

Each of the four keeps leading tokens, so ranking those near the highest settles nearly every row. What comes out is
what the filters, the softmax and the draw give one after the other, to the last bit. The whole vocabulary is read with
numpy or by a softmax of one row: both start no threads, and neither depends on what else is drawn.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from .arrangement import filter_stages
from .filters import apply_temperature, has_quotients
from .leading import leading_ids, leading_quotients
from .params import SamplingParams
from .row_probs import probs_of_row, shares_of
from .survivors import Left, Ranked
from .weights import Scores

SHORT = frozenset({"temperature", "top_k", "top_p", "min_p"})


def pick_of(leading: Iterable[Ranked], u: float) -> tuple[int, float]:
    """Invert the cumulative distribution at `u`, over tokens of falling score: give the token and its probability."""
    for each in leading:
        ids, probs = each
        cumulative = probs.cumsum(dtype=np.float64)
        if u < cumulative[-1]:
            break
    place = min(int(cumulative.searchsorted(u, side="right")), len(ids) - 1)  # rounding may leave the sum below 1
    return int(ids[place]), float(probs[place])


def is_short(params: SamplingParams) -> bool:
    """Whether no filter but these four is on, in minigen's own order."""
    return params.order == "minigen" and {name for name, _ in filter_stages(params)} <= SHORT


def short_left(scores: Tensor, params: SamplingParams) -> list[tuple[str, Left]]:
    """Give what each of the four that is on leaves of a row `(vocab,)`, float32 on the CPU."""
    stages = _leading_left(scores, params)
    left = stages[-1][1] if stages else Left(scores.numpy())
    if params.top_p < 1:
        left = _keep_mass(left, params.top_p)
        stages.append(("top_p", left))
    if params.min_p > 0:
        left = _keep_near(left, params.min_p)
        stages.append(("min_p", left))
    return stages


def _leading_left(scores: Tensor, params: SamplingParams) -> list[tuple[str, Left]]:
    """Give what temperature and top_k leave, as far as they are on; together they divide no more than is left."""
    row, count = scores.numpy(), params.top_k
    if params.temperature == 1:
        return [("top_k", _leading_of(row, count))] if count > 0 else []
    if 0 < count < len(row) and has_quotients(row, params.temperature):
        ids, quotients = leading_quotients(row, np.float32(params.temperature), count)
        divided = np.full(len(row), -np.inf, np.float32)
        divided[ids] = quotients
        return [("temperature", Left(row)), ("top_k", Left(divided, ids))]  # what is left is the same before a division
    divided = apply_temperature(scores, params.temperature).numpy()
    stages = [("temperature", Left(divided))]
    return [*stages, ("top_k", _leading_of(divided, count))] if count > 0 else stages


def _leading_of(row: Scores, count: int) -> Left:
    return Left(row, leading_ids(torch.from_numpy(row), count).numpy()) if count < len(row) else Left(row)


def _keep_mass(left: Left, mass: float) -> Left:
    """Keep a token while the probability of those before it is below `mass`: top_p."""
    for ids, probs in left.leading():
        reached = probs.astype(np.float64)
        count = int(np.count_nonzero(reached.cumsum() - reached < mass))
        if count < len(ids):  # the crossing lies within
            break
    return Left(left.scores, ids[:count])


def _keep_near(left: Left, min_p: float) -> Left:
    """Drop tokens less likely than `min_p` times the likeliest one."""
    if left.ids is not None:
        probs = shares_of(left.scores, left.ids)
        return Left(left.scores, left.ids[probs >= np.float32(min_p) * probs.max()])
    probs = probs_of_row(left.scores)
    return Left(np.where(probs < np.float32(min_p) * probs.max(), np.float32(-np.inf), left.scores))
