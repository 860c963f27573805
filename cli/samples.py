"""Records of a run: what holds for all of it, and what one sample has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..generation.errors import MinigenError
from ..generation.stats import RunStats
from ..generation.trace import Draw, FinishReason, Interval, Output
from ..presets.settings import Choice

CHOSEN_SEED = "chosen for this run"  # the origin of a seed that nobody gave


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What holds for every sample."""

    model: str
    preset: str
    prompt: str  # what the user gave, joined
    settings: Mapping[str, Choice]
    device: str
    is_compiled: bool = False  # a compiled step is at hand
    num_samples: int = 1


@dataclass(slots=True, kw_only=True)
class Sample:
    """One text as it comes to be."""

    index: int
    seed: int
    stats: RunStats
    text: str = ""
    finish_reason: FinishReason | None = None
    stop: str | int | None = None
    error: MinigenError | None = None
    outputs: list[Output] = field(default_factory=list)  # those with a token, where they are to be kept
    does_keep_outputs: bool = False
    margins: dict[str, Interval | None] | None = None  # where the text comes out unchanged; None: not asked for
    num_reordered: int = 0  # steps that would have had other candidates in minigen's own order

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Prompt tokens over the time to the first token; None for a later sample, which finds most of them read."""
        return None if self.index else self.stats.prefill_tokens_per_second

    def take(self, output: Output) -> None:
        """Add what one step did."""
        if output.token_id is not None:
            self.stats.token()
            if output.draw is not None:
                self._look_at(output.draw)
            if self.does_keep_outputs:
                self.outputs.append(_without_leading(output))
        self.text += output.text
        if output.finish_reason is not None:
            self.finish_reason, self.stop, self.error = output.finish_reason, output.stop, output.error

    def _look_at(self, draw: Draw) -> None:
        """Take what a draw says about the whole text."""
        self.num_reordered += draw.order_effect is not None and draw.order_effect.tokens_changed > 0
        if draw.margins:
            from ..generation.margins import DOMAINS, narrowed

            self.margins = narrowed(DOMAINS if self.margins is None else self.margins, draw.margins)


def _without_leading(output: Output) -> Output:
    """Give an output without the logits that only a trace wants: a long text would fill the memory with them."""
    if output.draw is None or output.draw.leading is None:
        return output
    return replace(output, draw=replace(output.draw, leading=None))
