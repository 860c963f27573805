"""Drawing a recorded run again: what each step would have chosen under other settings, from the same random numbers.

There is no model: of each step only the highest logits are known, and what the others add up to. A choice is *decided*
only where no distribution that fits them could give another. Each step stands by itself: it is given the recorded text
before it, whatever would have been chosen there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .arrangement import filter_stages, score_stages
from .bounds import Undecidable
from .cutoffs import next_limit
from .orders import PARTS, skips_filters
from .params import SamplingParams
from .partial_chain import Settling
from .partial_row import Known, known_row
from .sampler import XTC, uniform
from .trace import Leading
from .words import NO_WORDS, Words

ENDING = ("max_new_tokens", "stop", "ignore_eos")  # settings that end a text and change no draw
_NEUTRAL = SamplingParams()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One step of a recorded run."""

    token_id: int  # what was chosen
    rank: int  # its place among the raw logits, from 1
    leading: Leading


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recorded text: enough to draw it again."""

    params: SamplingParams
    seed: int  # of this text
    prompt_ids: Sequence[int]
    steps: Sequence[RecordedStep]
    vocab_size: int
    words: Words = NO_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Redraw:
    """What one step would have chosen."""

    index: int
    recorded_id: int
    token_id: int | None  # None where it is not decided
    reason: str = ""  # why it is not decided

    @property
    def is_decided(self) -> bool:
        """Whether the recorded logits settle the choice."""
        return self.token_id is not None

    @property
    def differs(self) -> bool:
        """Whether another token would have been chosen."""
        return self.token_id is not None and self.token_id != self.recorded_id


def replay(recording: Recording, params: SamplingParams, seed: int | None = None) -> Iterator[Redraw]:
    """Draw each step of a recording again under `params`, given the recorded text before it.

    seed: other random numbers than the recorded ones. Under settings that make no other draw, what was chosen is the
    answer. Raises ParameterError for token ids outside the vocabulary.
    """
    seed = recording.seed if seed is None else seed
    if seed == recording.seed and effective(params) == effective(recording.params):
        for index, step in enumerate(recording.steps):
            yield Redraw(index=index, recorded_id=step.token_id, token_id=step.token_id)
        return
    yield from _Replay(recording, params, seed).redraws()


def effective(params: SamplingParams) -> SamplingParams:
    """Give settings without those that change no draw: the seed, what ends a text, parts of what is off."""
    idle = ["seed", *ENDING, *(() if params.min_new_tokens else ("end_token_ids",))]
    for name, parts in PARTS.items():
        if getattr(params, name) == getattr(_NEUTRAL, name):
            idle += parts
    changed: dict[str, Any] = {name: getattr(_NEUTRAL, name) for name in idle}
    return replace(params, **changed)


class _Replay:
    """A replay under way: the recorded ids so far, and mirostat's limit."""

    def __init__(self, recording: Recording, params: SamplingParams, seed: int) -> None:
        self._recording, self._params, self._seed = recording, params, seed
        self._output_ids: list[int] = []
        self._limit = 2 * params.mirostat_tau
        self._probs: Tensor | None = None  # what the newest step drew from, where that is known
        self._parting = ""  # why mirostat's limit is not known any more

    def redraws(self) -> Iterator[Redraw]:
        """Give the steps in order."""
        for index, step in enumerate(self._recording.steps):
            token_id, reason = None, self._parting
            if not reason:
                try:
                    token_id = self._chosen(step)
                except Undecidable as undecided:
                    reason = str(undecided)
            self._output_ids.append(step.token_id)
            self._watch_mirostat(index, step.token_id, token_id)
            yield Redraw(index=index, recorded_id=step.token_id, token_id=token_id, reason=reason)

    @torch.inference_mode()
    def _chosen(self, step: RecordedStep) -> int:
        """Give what a step chooses. Raises Undecidable where what is known does not settle it."""
        params, number = self._params, len(self._output_ids)
        known = self._known(step)
        if skips_filters(params):
            return int(known.ids[0])
        coin, vocab_size = uniform(self._seed, number, XTC), self._recording.vocab_size
        settling = Settling(known, params, vocab_size=vocab_size, coin=coin, limit=self._limit)
        stages = filter_stages(params, coin=coin, limit=self._limit, words=self._recording.words)
        token_id, self._probs = settling.settle(stages, uniform(self._seed, number))
        return token_id

    def _known(self, step: RecordedStep) -> Known:
        recording = self._recording
        stages = score_stages(self._params, recording.prompt_ids, self._output_ids, recording.words)
        is_last_apart = step.token_id == step.leading.token_ids[-1] and step.rank > len(step.leading.token_ids)
        known = known_row(step.leading, stages, recording.vocab_size, is_last_apart=is_last_apart)
        if len(known.ids) == 0:
            if known.tail.count:
                raise Undecidable("a token that the trace does not keep is the likeliest")
            raise Undecidable("the settings rule out every token")
        return known

    def _watch_mirostat(self, index: int, recorded_id: int, token_id: int | None) -> None:
        """Move mirostat's limit on, as far as that is known: until the first step that differs or is not decided."""
        params, probs = self._params, self._probs
        if params.mirostat_tau == 0 or params.temperature == 0 or self._parting:
            return
        if token_id != recorded_id or probs is None:
            how = "goes another way at" if token_id not in (None, recorded_id) else "is not certain from"
            self._parting = f"mirostat_tau goes by the text before, which {how} token {index + 1}"
            return
        self._limit = next_limit(
            self._limit, float(probs[recorded_id]), tau=params.mirostat_tau, eta=params.mirostat_eta
        )
