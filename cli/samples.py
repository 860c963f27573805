"""Records of a run: what holds for all of it, and what one sample has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..generation.errors import MinigenError
from ..generation.stats import RunStats
from ..generation.trace import FinishReason, Output
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

    def take(self, output: Output) -> None:
        """Add what one step did."""
        if output.token_id is not None:
            self.stats.token()
            if self.does_keep_outputs:
                self.outputs.append(output)
        self.text += output.text
        if output.finish_reason is not None:
            self.finish_reason, self.stop, self.error = output.finish_reason, output.stop, output.error
