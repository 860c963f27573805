"""How two contexts change what a model thinks of the same continuation, token by token."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .model import Model
from .rows import Rows, exact_parts
from .scoring import Score, score_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One token of the continuation after context A and after context B."""

    a: Score
    b: Score
    kl: float | None  # KL(A || B) over the whole vocabulary, in bits; None where a distribution is missing

    @property
    def change(self) -> float | None:
        """The log-probability after B minus that after A, in nats; None where one is missing or both are −inf."""
        if self.a.logprob is None or self.b.logprob is None:
            return None
        return None if self.a.logprob == self.b.logprob == -math.inf else self.b.logprob - self.a.logprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What the tokens that both contexts tell something about come to."""

    num_compared: int
    logprob_a: float
    logprob_b: float
    kl: float | None  # bits; of all of them together

    @property
    def change(self) -> float | None:
        """The log-probability after B minus that after A, in nats; None where both are −inf."""
        return None if self.logprob_a == self.logprob_b == -math.inf else self.logprob_b - self.logprob_a


def total(found: Sequence[Comparison]) -> Total:
    """Add up comparisons, but for those in which a side is missing."""
    both = [one for one in found if one.a.logprob is not None and one.b.logprob is not None]
    return Total(
        num_compared=len(both),
        logprob_a=sum(one.a.logprob or 0.0 for one in both),
        logprob_b=sum(one.b.logprob or 0.0 for one in both),
        kl=sum(one.kl or 0.0 for one in both) if both else None,
    )


def gains(found: Sequence[Comparison], count: int) -> list[int]:
    """Give the places of the tokens that B made likelier, the largest change first, ties in their order."""
    known = [(one.change, place) for place, one in enumerate(found) if one.change is not None and one.change > 0]
    return [place for _, place in sorted(known, key=lambda each: -each[0])[:count]]


def losses(found: Sequence[Comparison], count: int) -> list[int]:
    """Give the places of the tokens that B made less likely, the largest change first, ties in their order."""
    known = [(one.change, place) for place, one in enumerate(found) if one.change is not None and one.change < 0]
    return [place for _, place in sorted(known, key=lambda each: each[0])[:count]]


def compare(
    model: Model, before_a: Sequence[int], before_b: Sequence[int], ids: Sequence[int]
) -> Iterator[list[Comparison]]:
    """Yield the comparisons of the ids of one continuation after two contexts, block by block, in order.

    A context without ids tells nothing about the first id. Raises NumberError where the logits are not numbers,
    OutOfMemory.
    """
    rows_a, rows_b = Rows(model), Rows(model)
    num_bare = int(not before_a or not before_b)
    if num_bare:
        a, b = _first_score(rows_a, before_a, ids[0]), _first_score(rows_b, before_b, ids[0])
        yield [Comparison(a=a, b=b, kl=None)]
    blocks_a = rows_a.before([*before_a, *ids], len(before_a) + num_bare)
    blocks_b = rows_b.before([*before_b, *ids], len(before_b) + num_bare)
    done = num_bare
    for (_, block_a), (_, block_b) in zip(blocks_a, blocks_b, strict=True):
        targets = ids[done : done + len(block_a)]
        scores = zip(score_rows(block_a, targets, done), score_rows(block_b, targets, done), strict=True)
        divergences = kl_bits(block_a, block_b)
        yield [Comparison(a=a, b=b, kl=kl) for (a, b), kl in zip(scores, divergences, strict=True)]
        done += len(targets)


def _first_score(rows: Rows, before: Sequence[int], token_id: int) -> Score:
    if not before:
        return Score(token_id=token_id)
    _, block = next(rows.before([*before, token_id], len(before)))
    return score_rows(block, [token_id], 0)[0]


@torch.inference_mode()
def kl_bits(rows_a: Tensor, rows_b: Tensor) -> list[float]:
    """Give KL(A || B) = Σ p_A · log2(p_A / p_B) of each pair of rows, `(n, vocab)` logits; in float64.

    Infinite where B rules out what A does not. Source: Kullback and Leibler 1951.
    """
    found: list[float] = []
    for part_a, part_b in zip(exact_parts(rows_a), exact_parts(rows_b), strict=True):
        a, b = part_a.log_softmax(-1), part_b.log_softmax(-1)
        terms = torch.where(a == -math.inf, 0.0, a.exp() * (a - b))
        found += (terms.sum(-1).clamp(min=0.0) / math.log(2)).tolist()  # rounding may leave it a little below 0
    return found
