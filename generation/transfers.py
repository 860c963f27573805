"""What comes back from the device after a pass, in one transfer: rows of logits, or tokens that were drawn there."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from .device_draws import ENTROPY, ID, LOGIT, LOGPROB, PROB, RANK, SETTINGS, draws
from .graphs import Capture, Graphs, StaticInput, bucket
from .orders import is_greedy
from .sampler import Sampler
from .trace import Draw

Wanted = tuple[Sampler, int]  # who draws, and the row of the logits that it draws from


class Transfer(Protocol):
    """Brings to the host what samplers go on with."""

    def taken(self, logits: Tensor, wanted: Sequence[Wanted]) -> Sequence[Tensor | Draw]:
        """Give each sampler's row `(vocab,)`, or its draw, from logits `(rows, vocab)`."""


class RowTransfer:
    """Brings all rows to the host, where samplers draw."""

    def taken(self, logits: Tensor, wanted: Sequence[Wanted]) -> Sequence[Tensor | Draw]:
        """Give each sampler's row."""
        rows = logits.float().cpu().unbind()
        return [rows[place] for _, place in wanted]


class DrawTransfer:
    """Draws on the device for each sampler that leaves it the draw, and brings the rows of the others beside that."""

    def __init__(self, capture: Capture | None = None) -> None:
        self._graphs = Graphs(capture)
        self._inputs: dict[tuple[int, int, torch.dtype], tuple[StaticInput, Tensor]] = {}  # settings and logits

    @property
    def failure(self) -> str | None:
        """Why draws are not in graphs any more; None while they are."""
        return self._graphs.failure

    @torch.inference_mode()
    def taken(self, logits: Tensor, wanted: Sequence[Wanted]) -> Sequence[Tensor | Draw]:
        """Give each sampler's draw, or its row where it must see it."""
        drawing = [each for each in wanted if each[0].leaves_draws]
        seeing = [place for sampler, place in wanted if not sampler.leaves_draws]
        drawn = self._drawn(logits, drawing) if drawing else logits.new_empty((0, 1), dtype=torch.float64)
        if not seeing:
            numbers, rows = drawn.cpu(), logits[:0]
        else:  # one behind the other, as they lie
            rows = logits[torch.tensor(seeing, device=logits.device)].float()
            both = torch.cat([drawn.view(torch.float32).flatten(), rows.flatten()]).cpu()
            numbers = both[: 2 * drawn.numel()].view(torch.float64).view(drawn.shape)
            rows = both[2 * drawn.numel() :].view(rows.shape)
        told, seen = iter(numbers.tolist()), iter(rows)
        return [_draw(sampler, next(told)) if sampler.leaves_draws else next(seen) for sampler, _ in wanted]

    def _drawn(self, logits: Tensor, drawing: Sequence[Wanted]) -> Tensor:
        """Draw for each; by a graph where each row is drawn from once, in order."""
        samplers = [sampler for sampler, _ in drawing]
        given, rows = self._given(bucket(len(samplers)), logits)
        numbers = given.numbers()
        for row, sampler in enumerate(samplers):
            params = sampler.params
            numbers[row] = params.temperature, params.top_k, params.top_p, params.min_p, sampler.next_number
        numbers[len(samplers) :] = numbers[0]
        settings = given.send()
        draw = partial(
            draws,
            are_greedy=all(sampler.params.temperature == 0 for sampler in samplers),
            are_measured=any(sampler.inspection.is_measured for sampler in samplers),
        )
        if self._graphs.are_open and [place for _, place in drawing] == list(range(len(logits))):
            rows[: len(logits)] = logits
            key = (rows.shape, rows.dtype, *draw.keywords.values())
            drawn = self._graphs.result(key, partial(draw, rows, settings))
            if drawn is not None:
                return drawn[: len(samplers)]
        places = torch.tensor([place for _, place in drawing], device=logits.device)
        return draw(logits[places], settings[: len(samplers)])

    def _given(self, count: int, logits: Tensor) -> tuple[StaticInput, Tensor]:
        """Give where the settings and the logits of so many rows stand."""
        key = count, logits.shape[1], logits.dtype
        if key not in self._inputs:
            settings = StaticInput((count, SETTINGS), torch.float64, logits.device)
            self._inputs[key] = settings, logits.new_zeros(count, logits.shape[1])
        return self._inputs[key]


def _draw(sampler: Sampler, told: Sequence[float]) -> Draw:
    """Say what was drawn for a sampler. told: the columns of `draws`."""
    is_measured = sampler.inspection.is_measured
    return Draw(
        token_id=int(told[ID]),
        logit=told[LOGIT],
        logprob=told[LOGPROB] if is_measured else math.nan,
        rank=int(told[RANK]) if is_measured else 0,
        entropy=told[ENTROPY] if is_measured else math.nan,
        final_prob=told[PROB],
        u=None if is_greedy(sampler.params) else sampler.next_number,
    )
