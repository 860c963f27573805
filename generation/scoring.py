"""How likely a model finds a text: each token's log-probability, by forward passes over a text that is given.

Log-probabilities are natural logs of the model's own softmax: no filter, no temperature. Rows are float32, as the
sampler's are, and their logarithms are taken in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import ParameterError
from .model import Model
from .passage import Passage, check_ids
from .pieces import Piece, cut
from .ranges import Range
from .rows import Rows, check_numbers, exact_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How likely the model found one token. All but the id is None where nothing stands before it."""

    token_id: int
    logprob: float | None = None  # natural log of the raw probability; −inf for a token that the model ruled out
    rank: int | None = None  # among the raw logits, from 1; ties by token id
    expected_id: int | None = None  # the likeliest token in its place; the lowest id among ties
    expected_logprob: float | None = None

    @property
    def surprisal(self) -> float | None:
        """How unexpected it was, in bits: −log2 of its probability."""
        return None if self.logprob is None else 0.0 - self.logprob / math.log(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One window over a sequence: it reads the ids from `begin` to `end` and scores those from `first` on."""

    begin: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the scored tokens of a text come to; a mean of nothing is None."""

    num_scored: int
    logprob: float  # of all of them together
    perplexity: float | None  # exp of the mean negative log-probability
    bits_per_byte: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a text is read: its tokens' shares of it, and the windows over it."""

    passage: Passage
    pieces: tuple[Piece, ...]  # one for each of the passage's own ids
    window: int | None  # tokens; None: everything is read at once
    stride: int | None  # how far the window moves
    passes: tuple[Pass, ...]  # one where everything fits

    def summary(self, scores: Sequence[Score]) -> Summary:
        """Give what the scores of all of the text's tokens come to, over all of its bytes."""
        return summarize(scores, sum(len(piece.raw) for piece in self.pieces))


def summarize(scores: Sequence[Score], num_bytes: int) -> Summary:
    """Give the perplexity and the bits per byte of scored tokens, which stand for `num_bytes` bytes of the text."""
    logprobs = [score.logprob for score in scores if score.logprob is not None]
    total = math.fsum(logprobs) if -math.inf not in logprobs else -math.inf
    return Summary(
        num_scored=len(logprobs),
        logprob=total,
        perplexity=_exp(-total / len(logprobs)) if logprobs else None,
        bits_per_byte=-total / math.log(2) / num_bytes if logprobs and num_bytes else None,
    )


def passes(num_before: int, num_ids: int, window: int | None, stride: int | None) -> list[Pass]:
    """Lay windows over a sequence of `num_ids` ids, the first `num_before` of which are not scored.

    One window where all fit. Else each moves on by `stride` and scores what the ones before it have not: a token has at
    least window − stride tokens before it, but for the beginning of the sequence.
    """
    if window is None or stride is None or num_ids <= window:
        return [Pass(begin=0, first=num_before, end=num_ids)]
    laid, done = [], num_before
    for begin in range(0, num_ids, stride):
        end = min(begin + window, num_ids)
        if end > done:
            laid.append(Pass(begin=begin, first=done, end=end))
            done = end
        if end == num_ids:
            break
    return laid


def read(model: Model, passage: Passage, *, window: int | None = None, stride: int | None = None) -> Reading:
    """Lay windows of at most `window` tokens over a text: None is as many as the model can look at.

    Raises ParameterError for a window beyond the model's, a stride that leaves a token nothing before it, or an id that
    has no logit.
    """
    ids = [*passage.before, *passage.ids]
    check_ids(ids, model.vocab_size)
    if window is not None and model.window is not None:
        window = int(Range(int, 2, model.window).check("window", window))
    window = model.window if window is None else window
    stride = _stride(window, stride)
    return Reading(
        passage=passage,
        pieces=tuple(cut(model.tokenizer, passage.text, passage.ids)),
        window=window,
        stride=stride,
        passes=tuple(passes(len(passage.before), len(ids), window, stride)),
    )


def score_text(model: Model, reading: Reading) -> Iterator[list[Score]]:
    """Yield the scores of a text's own tokens, block by block, in order. Raises NumberError and OutOfMemory."""
    return score(model, [*reading.passage.before, *reading.passage.ids], reading.passes)


def score(model: Model, ids: Sequence[int], laid: Sequence[Pass]) -> Iterator[list[Score]]:
    """Yield the scores of the tokens that `passes` laid windows over, block by block, in order.

    Raises NumberError where the logits are not numbers, OutOfMemory.
    """
    rows = Rows(model)
    for each in laid:
        seen, first = ids[each.begin : each.end], each.first - each.begin
        if first == 0:
            yield [Score(token_id=seen[0])]
            first = 1
        for at, block in rows.before(seen, first):
            yield score_rows(block, seen[at : at + len(block)], each.begin + at)


def score_each(model: Model, before: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[list[Score]]:
    """Give the scores of several continuations of one context, which is read once where the model's cache allows it.

    The context has one id at least. Raises NumberError where the logits are not numbers, OutOfMemory.
    """
    rows = Rows(model, limit=len(before) + max(map(len, continuations)))
    found = []
    for continuation in continuations:
        ids = [*before, *continuation]
        blocks = rows.before(ids, len(before))
        found.append([one for at, block in blocks for one in score_rows(block, ids[at : at + len(block)], at)])
    return found


@torch.inference_mode()
def score_rows(rows: Tensor, targets: Sequence[int], place: int) -> list[Score]:
    """Score targets, each by its own row of `(targets, vocab)`; `place` is the first one's, for an error's words."""
    check_numbers(rows, place)
    ids = torch.tensor(targets)
    logits = rows.gather(-1, ids[:, None])  # (targets, 1)
    is_lower_id = torch.arange(rows.shape[-1]) < ids[:, None]
    ranks = 1 + ((rows > logits) | ((rows == logits) & is_lower_id)).sum(-1)
    expected = rows.argmax(-1)  # the first of equals
    totals = torch.cat([part.logsumexp(-1) for part in exact_parts(rows)])
    logprobs = logits[:, 0].double() - totals
    highest = rows.gather(-1, expected[:, None])[:, 0].double() - totals
    columns = zip(targets, logprobs.tolist(), ranks.tolist(), expected.tolist(), highest.tolist(), strict=True)
    return [
        Score(token_id=token_id, logprob=logprob, rank=rank, expected_id=expected_id, expected_logprob=most)
        for token_id, logprob, rank, expected_id, most in columns
    ]


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _stride(window: int | None, stride: int | None) -> int | None:
    if window is None:
        if stride is not None:
            raise ParameterError("stride", stride, "left out: the model names no window, and none is given")
        return None
    return max(1, window // 2) if stride is None else int(Range(int, 1, max(1, window - 1)).check("stride", stride))
