"""What a draw tells: from the rows of one step to plain numbers."""

import math
from array import array
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .leading import Ids, leading_ids
from .margins import margins
from .orders import is_greedy, skips_filters
from .params import SamplingParams
from .ranking import HEAD
from .survivors import Left
from .trace import TEMPERATURES, Candidate, Draw, Inspection, Leading
from .waterfall import read, waterfall
from .weights import Floats, Scores, gaps_below, pieces, weights_of

NamedRow = tuple[str, Tensor]  # a stage's name, and the row (vocab,) that it left

NOTHING: Ids = np.empty(0, np.int64)


def describe(
    token_id: int,
    final_prob: float,
    u: float,
    rows: list[NamedRow],
    left: Sequence[tuple[str, Left]],
    inspection: Inspection,
    *,
    params: SamplingParams,
) -> Draw:
    """Say how a token came about.

    final_prob: the token's, among what was drawn from; u: the step's uniform number, also where nothing was drawn with
    it; rows: `(vocab,)` after each stage, the model's own logits first, the filters' too where stages are told of;
    left: what each stage left, and in the end a greedy choice.
    """
    raw = rows[0][1]
    row = raw.numpy()
    shown_u = None if is_greedy(params) else u
    if not inspection.is_measured:
        return Draw(
            token_id=token_id,
            logit=float(row[token_id]),
            logprob=math.nan,
            rank=0,
            entropy=math.nan,
            final_prob=final_prob,
            u=shown_u,
        )
    whole = read(row)
    log_total = math.log(whole.total)  # of the sum of exp(logit − highest)
    logit = row[token_id]
    most = max(inspection.num_candidates, inspection.num_leading, HEAD if inspection.has_stages else 0)
    ids = leading_ids(raw, most).numpy() if most else NOTHING
    return Draw(
        token_id=token_id,
        logit=float(logit),
        logprob=float(logit) - whole.highest - log_total,
        rank=1 + int(np.count_nonzero(row > logit)) + int(np.count_nonzero(row[:token_id] == logit)),
        entropy=whole.entropy,
        final_prob=final_prob,
        u=shown_u,
        candidates=_candidates(token_id, row, left, (whole.highest, log_total), ids[: inspection.num_candidates]),
        stages=waterfall(token_id, _with_greedy(token_id, rows, params), whole) if inspection.has_stages else (),
        margins=margins(token_id, u, rows, params, leading=ids) if inspection.has_stages else {},
        leading=_leading(token_id, row, whole.count, ids[: inspection.num_leading]) if inspection.num_leading else None,
    )


def _candidates(
    token_id: int, row: Scores, left: Sequence[tuple[str, Left]], sums: tuple[float, float], ids: Ids
) -> tuple[Candidate, ...]:
    """sums: the highest raw logit, and the log of the sum of exp(logit − highest)."""
    if len(ids) == 0:
        return ()
    if token_id not in ids:
        ids = np.append(ids, token_id)
    logits, probs = row[ids].tolist(), left[-1][1].probs_of(ids).tolist()
    dropped: list[str | None] = [None] * len(ids)
    for name, each in left[1:]:
        is_held = each.holds(ids).tolist()
        dropped = [before or (None if held else name) for held, before in zip(is_held, dropped, strict=True)]
    return tuple(
        Candidate(token_id=i, logit=logit, logprob=logit - sums[0] - sums[1], final_prob=prob, dropped_by=by)
        for i, logit, prob, by in zip(ids.tolist(), logits, probs, dropped, strict=True)
    )


def _with_greedy(token_id: int, rows: list[NamedRow], params: SamplingParams) -> list[NamedRow]:
    """Give the rows; for a greedy step with the row in which its choice alone is left."""
    if not skips_filters(params):
        return rows
    row = rows[-1][1].numpy()
    alone = np.full_like(row, -np.inf)
    alone[token_id] = row[token_id]
    return [*rows, ("greedy", torch.from_numpy(alone))]


def _leading(token_id: int, row: Scores, num_left: int, ids: Ids) -> Leading:
    """num_left: tokens that the model did not rule out."""
    if token_id not in ids:
        ids = np.append(ids[:-1], token_id)
    others = row.copy()
    others[ids] = -np.inf
    num_others, highest = num_left - len(ids), float(others.max())
    logsumexps = [-math.inf] * (1 + len(TEMPERATURES))
    if num_others:
        sums = np.sum([_sums(part) for part in pieces(gaps_below(highest, others))], axis=0)
        logsumexps = [highest / t + math.log(each) for t, each in zip((1, *TEMPERATURES), sums, strict=True)]
    return Leading(
        token_ids=array("I", ids.astype(np.uint32).tobytes()),
        logits=array("f", row[ids].tobytes()),
        num_others=num_others,
        others_logsumexp=logsumexps[0],
        others_logsumexps=logsumexps[1:],
        deviation=_deviation(row if num_left == len(row) else row[row > -np.inf]),
    )


def _deviation(row: Scores) -> float:
    """Give the population standard deviation."""
    away = row.astype(np.float64)
    away -= np.add.reduce(away) / len(away)
    return math.sqrt(sum(float(part.dot(part)) for part in pieces(away)) / len(away))


def _sums(gaps: Floats) -> Floats:
    """Give the sum of the weights at 1, and at each of TEMPERATURES: products of roots, to six digits."""
    exact = weights_of(gaps)
    powers = np.empty((len(TEMPERATURES), len(gaps)), np.float32)  # half the work of float64
    weights = exact.astype(np.float32)
    half = np.sqrt(weights, out=powers[0])
    quarter = np.sqrt(half)
    eighth = np.sqrt(quarter)
    np.multiply(half, eighth, out=powers[2])
    np.multiply(half, quarter, out=powers[4])
    np.multiply(powers[4], eighth, out=powers[6])
    np.multiply(powers[0:8:2], np.sqrt(eighth), out=powers[1:8:2])
    np.multiply(weights, quarter, out=powers[8])
    np.multiply(weights, half, out=powers[9])
    return np.append(np.add.reduce(exact), np.add.reduce(powers, axis=1))
