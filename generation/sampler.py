"""The sampler: runs the chain of filters over one row of logits and draws a token with the sequence's own numbers."""

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from .arrangement import filter_stages, kept_by_own_order, score_stages
from .chain import NamedFilter
from .cutoffs import next_limit
from .errors import NumberError, ParameterError
from .inspection import NamedRow, describe
from .orders import skips_filters
from .params import SamplingParams, next_seed
from .shortlist import is_short, pick_of, short_left
from .survivors import Left, leading_of
from .trace import UNINSPECTED, Draw, Inspection, OrderEffect
from .words import NO_WORDS, Words, check_words

XTC = b"xtc"  # the stream of XTC's coins


def choose_seed() -> int:
    """Choose a seed for a request that gave none: 32 bits, which a person can read out and every JSON reader keeps."""
    return secrets.randbits(32)


def uniform(seed: int, step: int, stream: bytes = b"") -> float:
    """Give the uniform number in [0, 1) of one step: a function of seed, step and stream alone.

    A counter-based stream: no state, so nothing else that runs can move it. 53 bits of BLAKE2b(seed, step), with
    `stream` as its personalisation; the draws use the unnamed one.
    """
    counter = seed.to_bytes(8, "little") + step.to_bytes(8, "little")
    digest = hashlib.blake2b(counter, digest_size=8, person=stream).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53


class Sampler:
    """Draws the tokens of one sequence, one after the other.

    It remembers what it drew: the penalties need the output so far, and the n-th draw uses the n-th random number.
    `words` are the tokenizer's ids for settings that are texts; ParameterError where such a setting lacks them.
    """

    def __init__(
        self,
        params: SamplingParams | None = None,
        *,
        prompt_ids: Sequence[int] = (),
        words: Words | None = None,
        inspection: Inspection = UNINSPECTED,
    ) -> None:
        self.params = params or SamplingParams()
        self.seed = choose_seed() if self.params.seed is None else self.params.seed
        self.prompt_ids = list(prompt_ids)
        self.output_ids: list[int] = []
        self.inspection = inspection
        if words is None:
            check_words(self.params)
        self.words = words or NO_WORDS
        self.surprisal_limit = 2 * self.params.mirostat_tau  # mirostat's state, in bits
        self._changes_scores = bool(score_stages(self.params, (), (), self.words))
        self._is_short = is_short(self.params) and not inspection.has_stages
        self._later_rows: list[Sampler] = []

    def sample(self, logits: Tensor) -> Tensor:
        """Draw an id for each row: logits `(vocab,)` or `(rows, vocab)`, ids `()` or `(rows,)`.

        Row i is a sequence of its own, with seed + i.
        """
        if logits.dim() < 2:
            return torch.tensor(self.draw(logits).token_id, device=logits.device)
        while len(self._later_rows) < logits.shape[0] - 1:
            self._later_rows.append(self._sibling(len(self._later_rows) + 1))
        samplers = [self, *self._later_rows]
        ids = [sampler.draw(row).token_id for sampler, row in zip(samplers, logits, strict=False)]
        return torch.tensor(ids, dtype=torch.long, device=logits.device)

    def _sibling(self, row: int) -> "Sampler":
        sibling = Sampler(self.params, prompt_ids=self.prompt_ids, words=self.words)
        sibling.seed = next_seed(self.seed, row)
        return sibling

    def draw(self, logits: Tensor) -> Draw:
        """Draw the next token from one row of logits, `(vocab,)` or `(1, vocab)`, and say how it came about.

        Raises ParameterError for any other shape, NumberError where the logits are not numbers or bans leave no token.
        """
        if logits.dim() == 0 or logits.numel() == 0 or logits.shape[-1] != logits.numel():
            raise ParameterError("logits", tuple(logits.shape), "of one row, (vocab,) or (1, vocab)")
        raw = logits.detach().to("cpu", torch.float32).view(-1)
        step = len(self.output_ids)
        rows = _run(self._score_stages(), raw)
        _check_numbers(rows, step)
        number = uniform(self.seed, step)
        coin = uniform(self.seed, step, XTC) if self.params.xtc_probability > 0 else 0.0
        if skips_filters(self.params):
            token_id, prob = int(rows[-1][1].numpy().argmax()), 1.0
            left = [*_left_of(rows), ("greedy", Left(rows[-1][1].numpy(), np.array([token_id])))]
        else:
            left = self._filtered(rows, coin)
            token_id, prob = pick_of(left[-1][1].leading(), number)
        effect = self._order_effect(rows, token_id, coin)
        self.output_ids.append(token_id)
        self._move_limit(prob)
        draw = describe(token_id, prob, number, rows, left, self.inspection, params=self.params)
        return draw if effect is None else replace(draw, order_effect=effect)

    @property
    def leaves_draws(self) -> bool:
        """Whether draws can be made elsewhere: of temperature, top_k, top_p, min_p alone, with no row to tell of."""
        return self._is_short and not self._changes_scores and not self.inspection.tells_more

    @property
    def next_number(self) -> float:
        """The uniform number of its next draw."""
        return uniform(self.seed, len(self.output_ids))

    def accept(self, draw: Draw) -> Draw:
        """Take a draw that was made elsewhere with its next number as its own.

        Raises NumberError where the logit is no number, which tells that the row was none.
        """
        if not math.isfinite(draw.logit):
            raise NumberError.of_logits(f"at token {len(self.output_ids) + 1}")
        self.output_ids.append(draw.token_id)
        return draw

    def _score_stages(self) -> list[NamedFilter]:
        if not self._changes_scores:  # the history need not be put together
            return []
        return score_stages(self.params, self.prompt_ids, self.output_ids, self.words)

    def _filtered(self, rows: list[NamedRow], coin: float) -> list[tuple[str, Left]]:
        """Give what is left after each stage, the filters' among them, whose rows are added where they make any."""
        if self._is_short:
            return [*_left_of(rows), *short_left(rows[-1][1], self.params)]
        filters = filter_stages(self.params, coin=coin, limit=self.surprisal_limit, words=self.words)
        rows += _run(filters, rows[-1][1])[1:]
        return _left_of(rows)

    def _order_effect(self, rows: Sequence[tuple[str, Tensor]], token_id: int, coin: float) -> OrderEffect | None:
        """Hold what is left of a step against what minigen's own order would have left."""
        params, history = self.params, (self.prompt_ids, self.output_ids)
        if params.order == "minigen":
            return None
        raw, limit = rows[0][1], self.surprisal_limit
        is_kept = rows[-1][1] > -math.inf
        if skips_filters(params):
            is_kept = torch.zeros_like(is_kept).index_fill_(0, torch.tensor(token_id), True)
        is_own = kept_by_own_order(params, raw, *history, words=self.words, coin=coin, limit=limit)
        return OrderEffect(
            order=params.order,
            tokens_left=int(is_kept.sum()),
            own_tokens_left=int(is_own.sum()),
            tokens_changed=int((is_kept != is_own).sum()),
        )

    def _move_limit(self, prob: float) -> None:
        """Move mirostat's limit on by the final probability of the token that was drawn."""
        params = self.params
        if params.mirostat_tau > 0 and not skips_filters(params):
            limit, tau, eta = self.surprisal_limit, params.mirostat_tau, params.mirostat_eta
            self.surprisal_limit = next_limit(limit, prob, tau=tau, eta=eta)


def pick(scores: Tensor, probs: Tensor, u: float) -> int:
    """Invert the cumulative distribution of a row `(vocab,)` at `u`, over tokens of falling score, ties by id."""
    token_id, _ = pick_of(leading_of(scores.numpy(), probs.numpy()), u)
    return token_id


def _left_of(rows: Sequence[NamedRow]) -> list[tuple[str, Left]]:
    return [(name, Left(row.numpy())) for name, row in rows]


def _run(stages: Sequence[NamedFilter], row: Tensor) -> list[tuple[str, Tensor]]:
    """Give the row after each stage, named, the row itself first."""
    rows = [("raw", row)]
    for name, apply in stages:
        rows.append((name, apply(rows[-1][1])))
    return rows


def _check_numbers(rows: list[tuple[str, Tensor]], step: int) -> None:
    """Refuse logits that are not numbers (a maximum is NaN if any is), and bans that leave no token."""
    if not math.isfinite(rows[0][1].numpy().max()):
        raise NumberError.of_logits(f"at token {step + 1}")
    if len(rows) > 1 and rows[-1][1].numpy().max() == -math.inf:
        left = [int((row > -math.inf).sum()) for _, row in rows]
        banning = [name for (name, _), (before, after) in zip(rows[1:], pairwise(left), strict=True) if after < before]
        raise NumberError(f"{' and '.join(banning)} ban every token at token {step + 1}.")
