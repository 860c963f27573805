"""The sampler: runs the chain of filters over one row of logits and draws a token with the sequence's own numbers."""

import hashlib
import math
import secrets
from collections.abc import Sequence

import torch
from torch import Tensor

from .errors import NumberError, ParameterError
from .filters import HEADS, Stage, filter_stages, leading_ids, score_stages
from .params import Range, SamplingParams, next_seed
from .trace import Candidate, Draw


def choose_seed() -> int:
    """Choose a seed for a request that gave none: 32 bits, which a person can read out and every JSON reader keeps."""
    return secrets.randbits(32)


def uniform(seed: int, step: int) -> float:
    """Give the uniform number in [0, 1) of one step: a function of seed and step alone.

    A counter-based stream: no state, so nothing else that runs can move it. 53 bits of BLAKE2b(seed, step).
    """
    digest = hashlib.blake2b(seed.to_bytes(8, "little") + step.to_bytes(8, "little"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53


class Sampler:
    """Draws the tokens of one sequence, one after the other.

    It remembers what it drew: the penalties need the output so far, and the n-th draw uses the n-th random number.
    """

    def __init__(
        self, params: SamplingParams | None = None, *, prompt_ids: Sequence[int] = (), num_candidates: int = 0
    ) -> None:
        self.params = params or SamplingParams()
        self.seed = choose_seed() if self.params.seed is None else self.params.seed
        self.prompt_ids = list(prompt_ids)
        self.output_ids: list[int] = []
        self.num_candidates = int(Range(int, 0).check("num_candidates", num_candidates))
        self._filters = filter_stages(self.params)
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
        sibling = Sampler(self.params, prompt_ids=self.prompt_ids)
        sibling.seed = next_seed(self.seed, row)
        return sibling

    @torch.inference_mode()
    def draw(self, logits: Tensor) -> Draw:
        """Draw the next token from one row of logits, `(vocab,)` or `(1, vocab)`, and say how it came about.

        Raises ParameterError for any other shape, NumberError where the logits are no numbers or bans leave no token.
        """
        if logits.dim() == 0 or logits.numel() == 0 or logits.shape[-1] != logits.numel():
            raise ParameterError("logits", tuple(logits.shape), "of one row, (vocab,) or (1, vocab)")
        raw = logits.detach().flatten().to("cpu", torch.float32)
        step = len(self.output_ids)
        rows = _run(score_stages(self.params, self.prompt_ids, self.output_ids), raw)
        _check_numbers(rows, step)
        if self.params.temperature == 0:
            token_id, u = int(rows[-1][1].argmax()), None
            final = torch.zeros_like(raw).index_fill_(0, torch.tensor(token_id), 1.0)
        else:
            rows += _run(self._filters, rows[-1][1])[1:]
            u = uniform(self.seed, step)
            final = rows[-1][1].softmax(-1)
            token_id = pick(rows[-1][1], final, u)
        self.output_ids.append(token_id)
        return self._describe(token_id, u, rows, final)

    def _describe(self, token_id: int, u: float | None, rows: list[tuple[str, Tensor]], final: Tensor) -> Draw:
        raw = rows[0][1]
        total = float(raw.logsumexp(-1))
        probs = (raw - total).exp()
        mean = float(torch.dot(probs, raw.clamp(min=-1e30)))  # −inf · 0 would be no number
        logit = raw[token_id]
        rank = 1 + int((raw > logit).sum()) + int((raw[:token_id] == logit).sum())
        candidates: tuple[Candidate, ...] = ()
        if self.num_candidates:
            candidates = self._candidates(token_id, rows, final, total)
        return Draw(
            token_id=token_id,
            logit=float(logit),
            logprob=float(logit) - total,
            rank=rank,
            entropy=max(0.0, (total - mean) / math.log(2)),
            final_prob=float(final[token_id]),
            u=u,
            candidates=candidates,
        )

    def _candidates(
        self, token_id: int, rows: list[tuple[str, Tensor]], final: Tensor, total: float
    ) -> tuple[Candidate, ...]:
        ids = leading_ids(rows[0][1], self.num_candidates)
        if token_id not in ids:
            ids = torch.cat([ids, torch.tensor([token_id])])
        logits, probs = rows[0][1][ids].tolist(), final[ids].tolist()
        dropped: list[str | None] = [None] * len(ids)
        for name, row in rows[1:]:
            is_gone = (row[ids] == -math.inf).tolist()
            dropped = [name if gone and not before else before for gone, before in zip(is_gone, dropped, strict=True)]
        return tuple(
            Candidate(token_id=i, logit=logit, logprob=logit - total, final_prob=prob, dropped_by=by)
            for i, logit, prob, by in zip(ids.tolist(), logits, probs, dropped, strict=True)
        )


def pick(scores: Tensor, probs: Tensor, u: float) -> int:
    """Invert the cumulative distribution of a row `(vocab,)` at `u`, over tokens of falling probability, ties by id."""
    for count in (*HEADS, scores.shape[-1]):
        ids = leading_ids(scores, count)
        cumulative = probs[ids].double().cumsum(0)
        if len(ids) < count or u < float(cumulative[-1]):
            break
    place = int(torch.searchsorted(cumulative, u, right=True))
    return int(ids[min(place, len(ids) - 1)])  # rounding may leave the sum a little below 1


def _run(stages: Sequence[Stage], row: Tensor) -> list[tuple[str, Tensor]]:
    """Give the row after each stage, named, the row itself first."""
    rows = [("raw", row)]
    for name, apply in stages:
        rows.append((name, apply(rows[-1][1])))
    return rows


def _check_numbers(rows: list[tuple[str, Tensor]], step: int) -> None:
    """Refuse logits that are no numbers (a maximum is NaN if any is), and bans that leave no token."""
    if not math.isfinite(float(rows[0][1].max())):
        hint = "try --dtype bfloat16 or --dtype float32"
        raise NumberError(f"The model gave non-finite logits at token {step + 1}; {hint}.")
    if rows[-1][1].max() == -math.inf:
        raise NumberError(f"{' and '.join(name for name, _ in rows[1:])} ban every token at token {step + 1}.")
