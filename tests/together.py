"""A double for an engine that runs several requests together, in any order that a test wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minigen.generation.params import SamplingParams
from minigen.generation.prompt import Prompt
from minigen.generation.trace import UNINSPECTED, Candidate, Draw, Inspection, Output

END: dict[str, Any] = {"finish_reason": "stop", "stop": 0}


def output_of(request_id: str, step: int, text: str, **ending: Any) -> Output:
    """An output with a draw, whose numbers tell of request and step."""
    one = Candidate(token_id=step, logit=1.0, logprob=-0.7, final_prob=0.6, dropped_by=None)
    draw = Draw(
        token_id=step,
        logit=float(request_id),
        logprob=-0.7,
        rank=1 + step,
        entropy=1.0,
        final_prob=0.6,
        u=0.1,
        candidates=(one,),
    )
    return Output(request_id=request_id, text=text, token_id=step, draw=draw, **ending)


class TogetherEngine:
    """Request i writes the pieces texts[i], a token each, and then ends as endings[i] says.

    pick: which of the running requests get a token in a step, by their numbers; None: all.
    before: called at the beginning of each step.
    """

    def __init__(
        self,
        texts: Sequence[Sequence[str]],
        *,
        endings: Sequence[dict[str, Any]] = (),
        max_running: int = 16,
        pick: Callable[[list[int]], list[int]] = lambda running: running,
        before: Callable[[int], None] = lambda step: None,
    ) -> None:
        self.texts, self.endings, self.max_running = texts, endings or [END] * len(texts), max_running
        self._pick, self._before = pick, before
        self._steps = 0
        self._left: dict[int, list[Output]] = {}  # what each request that has not ended has left to give
        self.seeds: list[int | None] = []

    def add_request(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        inspection: Inspection = UNINSPECTED,
    ) -> str:
        number = len(self.seeds)
        self.seeds.append(None if sampling_params is None else sampling_params.seed)
        name = str(number)
        outputs = [output_of(name, step, piece) for step, piece in enumerate(self.texts[number])]
        self._left[number] = [*outputs, Output(request_id=name, text="", **self.endings[number])]
        return name

    def step(self) -> list[Output]:
        self._before(self._steps)
        self._steps += 1
        aborted = [number for number, left in self._left.items() if left[0].finish_reason == "interrupted"]
        outputs = [self._left[number].pop(0) for number in aborted or self._pick(list(self._left)[: self.max_running])]
        self._left = {number: left for number, left in self._left.items() if left}
        return outputs

    def has_unfinished_requests(self) -> bool:
        return bool(self._left)

    def abort_request(self, request_id: str) -> None:
        left = self._left.get(int(request_id))
        if left is not None:
            has_begun = len(left) <= len(self.texts[int(request_id)])
            left[:] = [Output(request_id=request_id, text="~" * has_begun, finish_reason="interrupted")]

    def num_cached(self, request_id: str) -> int:
        return 0

    def seed_of(self, request_id: str) -> int:
        seed = self.seeds[int(request_id)]
        return 41 if seed is None else seed
