"""Ways to go on from one context, by how likely the model finds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .model import Model
from .passage import check_fits, check_ids, read_after
from .scoring import Score, score_each


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """A text after a context. Ranks count from 1 and are in the order given among equals."""

    text: str
    scores: tuple[Score, ...]
    rank: int = 1  # by the whole log-probability
    rank_per_token: int = 1
    share: float | None = 1.0  # of the probability of all the texts that it was compared with; None where all have none

    @property
    def logprob(self) -> float:
        """Natural log of its probability: the sum over its tokens."""
        logprobs = [one.logprob for one in self.scores if one.logprob is not None]
        return -math.inf if -math.inf in logprobs else math.fsum(logprobs)

    @property
    def logprob_per_token(self) -> float:
        """The mean over its tokens: what a long text is not punished by."""
        return self.logprob / len(self.scores)

    @property
    def prob(self) -> float:
        """Its probability: the product over its tokens."""
        return math.exp(self.logprob)


def continuations(model: Model, before: Sequence[int], texts: Sequence[str]) -> list[Continuation]:
    """Give texts as continuations of a context, likeliest first.

    Raises PromptError for an empty text or one that does not fit the window with the context, ParameterError for an id
    that has no logit.
    """
    all_ids = [read_after(model.tokenizer, before, text).ids for text in texts]
    for ids in all_ids:
        check_fits(len(before) + len(ids), model.window)
        check_ids([*before, *ids], model.vocab_size)
    scores = score_each(model, before, all_ids)
    plain = [Continuation(text=text, scores=tuple(each)) for text, each in zip(texts, scores, strict=True)]
    return _ranked(plain)


def _ranked(plain: Sequence[Continuation]) -> list[Continuation]:
    highest = max(one.logprob for one in plain)
    weights = [math.exp(one.logprob - highest) if highest > -math.inf else 0.0 for one in plain]
    total = math.fsum(weights)
    ranks = _places([one.logprob for one in plain])
    ranks_per_token = _places([one.logprob_per_token for one in plain])
    found = [
        replace(one, rank=rank, rank_per_token=per_token, share=weight / total if total else None)
        for one, rank, per_token, weight in zip(plain, ranks, ranks_per_token, weights, strict=True)
    ]
    return sorted(found, key=lambda one: one.rank)


def _places(values: Sequence[float]) -> list[int]:
    """Give each value's place from 1, the highest first; the earlier one first among equals."""
    order = sorted(range(len(values)), key=lambda i: -values[i])
    return [order.index(i) + 1 for i in range(len(values))]
