"""What a draw tells: from the rows of one step to plain numbers."""

import math
from array import array

import numpy as np
import torch
from torch import Tensor

from .filters import leading_ids
from .margins import margins
from .orders import is_greedy, skips_filters
from .params import SamplingParams
from .trace import TEMPERATURES, Candidate, Draw, Inspection, Leading
from .waterfall import read, waterfall
from .weights import Floats, gaps_below, pieces, weights_of

NamedRow = tuple[str, Tensor]  # a stage's name, and the row (vocab,) that it left


def describe(
    token_id: int,
    final_prob: float,
    u: float,
    rows: list[NamedRow],
    inspection: Inspection,
    *,
    params: SamplingParams,
) -> Draw:
    """Say how a token came about.

    final_prob: the token's, among what was drawn from; u: the step's uniform number, also where nothing was drawn with
    it; rows: `(vocab,)` after each stage, the model's own logits first. The rows between are needed for candidates and
    stages only.
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
    total = whole.highest + math.log(whole.total)  # the natural log of the sum of exp(logit)
    logit = row[token_id]
    staged = _with_greedy(token_id, rows, params) if inspection.num_candidates or inspection.has_stages else rows
    most = max(inspection.num_candidates, inspection.num_leading)
    ids = leading_ids(raw, most) if most else torch.empty(0, dtype=torch.long)
    return Draw(
        token_id=token_id,
        logit=float(logit),
        logprob=float(logit) - total,
        rank=1 + int(np.count_nonzero(row > logit)) + int(np.count_nonzero(row[:token_id] == logit)),
        entropy=whole.entropy,
        final_prob=final_prob,
        u=shown_u,
        candidates=_candidates(token_id, staged, total, ids[: inspection.num_candidates]),
        stages=waterfall(token_id, staged, whole) if inspection.has_stages else (),
        margins=margins(token_id, u, rows, params) if inspection.has_stages else {},
        leading=_leading(token_id, raw, ids[: inspection.num_leading]) if inspection.num_leading else None,
    )


def _candidates(token_id: int, rows: list[NamedRow], total: float, ids: Tensor) -> tuple[Candidate, ...]:
    if len(ids) == 0:
        return ()
    if token_id not in ids:
        ids = torch.cat([ids, torch.tensor([token_id])])
    logits, probs = rows[0][1][ids].tolist(), rows[-1][1].softmax(-1)[ids].tolist()
    dropped: list[str | None] = [None] * len(ids)
    for name, row in rows[1:]:
        is_gone = (row[ids] == -math.inf).tolist()
        dropped = [name if gone and not before else before for gone, before in zip(is_gone, dropped, strict=True)]
    return tuple(
        Candidate(token_id=i, logit=logit, logprob=logit - total, final_prob=prob, dropped_by=by)
        for i, logit, prob, by in zip(ids.tolist(), logits, probs, dropped, strict=True)
    )


def _with_greedy(token_id: int, rows: list[NamedRow], params: SamplingParams) -> list[NamedRow]:
    """Give the rows; for a greedy step with the row in which its choice alone is left."""
    if not skips_filters(params):
        return rows
    row = rows[-1][1]
    alone = torch.full_like(row, -math.inf)
    alone[token_id] = row[token_id]
    return [*rows, ("greedy", alone)]


def _leading(token_id: int, raw: Tensor, ids: Tensor) -> Leading:
    if token_id not in ids:
        ids = torch.cat([ids[:-1], torch.tensor([token_id])])
    row, leading = raw.numpy(), ids.numpy()
    others = row.copy()
    others[leading] = -np.inf
    num_others, highest = int(np.count_nonzero(others > -np.inf)), float(others.max())
    logsumexps = [-math.inf] * (1 + len(TEMPERATURES))
    if num_others:
        sums = np.sum([_sums(part) for part in pieces(gaps_below(highest, others))], axis=0)
        logsumexps = [highest / t + math.log(each) for t, each in zip((1, *TEMPERATURES), sums, strict=True)]
    return Leading(
        token_ids=array("I", leading.astype(np.uint32).tobytes()),
        logits=array("f", row[leading].tobytes()),
        num_others=num_others,
        others_logsumexp=logsumexps[0],
        others_logsumexps=logsumexps[1:],
        deviation=float((row if row.min() > -np.inf else row[row > -np.inf]).std(dtype=np.float64)),
    )


def _sums(gaps: Floats) -> Floats:
    """Give the sum of the weights at 1, and at each of TEMPERATURES: products of roots, to six digits."""
    exact = weights_of(gaps)
    weights = exact.astype(np.float32)  # half the work
    half = np.sqrt(weights)
    quarter = np.sqrt(half)
    eighth = np.sqrt(quarter)
    sixteenth, most = np.sqrt(eighth), half * quarter
    even = (half, half * eighth, most, most * eighth)
    roots = [each for one in even for each in (one, one * sixteenth)]
    sums = [exact, *roots, weights * quarter, weights * half]
    return np.array([float(each.sum()) for each in sums])
