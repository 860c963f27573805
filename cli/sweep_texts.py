"""Records of a sweep: its combinations, its texts as they come to be, and what a combination has come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..generation.errors import MinigenError
from ..generation.orders import is_greedy
from ..generation.trace import FinishReason, Output
from .setting_words import written
from .sweep_measures import distinct, first_difference

if TYPE_CHECKING:
    from ..generation.prompt import Prompt
    from ..presets import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One value for each swept setting, and what that makes of all settings."""

    index: int
    values: Mapping[str, Any]  # of the swept settings, by name
    settings: Settings
    prompt: Prompt

    @property
    def name(self) -> str:
        """What it is called: `2 · temperature 0.2 · top_p 0.95`."""
        return " · ".join([str(self.index + 1), *(f"{name} {written(value)}" for name, value in self.values.items())])


@dataclass(slots=True, kw_only=True)
class SweptText:
    """One text of a combination as it comes to be."""

    combination: int
    index: int  # of its seed
    seed: int
    token_ids: list[int] = field(default_factory=list)  # an end token included
    logprob: float = 0.0  # natural log of the raw probability, all tokens together
    text: str = ""
    finish_reason: FinishReason | None = None
    stop: str | int | None = None
    error: MinigenError | None = None

    def take(self, output: Output) -> None:
        """Add what one step did."""
        if output.token_id is not None:
            self.token_ids.append(output.token_id)
        if output.draw is not None:
            self.logprob += output.draw.logprob
        self.text += output.text
        if output.finish_reason is not None:
            self.finish_reason, self.stop, self.error = output.finish_reason, output.stop, output.error

    @property
    def is_there(self) -> bool:
        """Whether there is anything of it: one that was interrupted before its first token is not."""
        return bool(self.token_ids) or self.finish_reason not in (None, "interrupted")

    @property
    def logprob_per_token(self) -> float | None:
        """The mean log-probability of its tokens; None where it has none."""
        return self.logprob / len(self.token_ids) if self.token_ids else None


@dataclass(frozen=True, slots=True)
class Board:
    """All combinations, and for each its texts, seed by seed: a single one where the seed changes nothing."""

    combinations: Sequence[Combination]
    texts: Sequence[Sequence[SweptText]]
    seeds: Sequence[int]

    @classmethod
    def of(cls, combinations: Sequence[Combination], seeds: Sequence[int]) -> Board:
        """Give the board before anything is written."""
        texts = []
        for each in combinations:
            own = seeds[:1] if is_greedy(each.settings.params) else seeds
            texts.append([SweptText(combination=each.index, index=i, seed=seed) for i, seed in enumerate(own)])
        return cls(combinations, texts, seeds)

    @property
    def in_turn(self) -> list[SweptText]:
        """All texts in the order in which they start: those of one seed side by side, seed after seed."""
        return sorted((text for row in self.texts for text in row), key=lambda text: text.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where a text parts from that of the first combination with the same seed."""

    seed: int
    index: int  # of the token
    before: Sequence[int]  # the ids that both have
    token_id: int
    first_token_id: int  # in the first combination


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a combination has come to, over all that there is of its texts."""

    num_texts: int
    num_tokens: int
    logprob_per_token: float | None  # over the tokens of all texts
    distinct_1: float | None  # over all texts together
    distinct_2: float | None
    tokens_per_text: float | None
    finish_reasons: Mapping[str, int]  # how many texts ended so
    num_compared: int  # texts that were held against the first combination's
    partings: Sequence[Parting]  # in the order of the seeds

    @property
    def first_parting(self) -> Parting | None:
        """The earliest parting; among equals that of the first seed."""
        return min(self.partings, key=lambda one: one.index, default=None)


def for_each_seed(texts: Sequence[SweptText], num_seeds: int) -> list[SweptText]:
    """Give the texts of a combination seed by seed: one that was written once stands for every seed."""
    return list(texts) * num_seeds if len(texts) == 1 else list(texts)


def summary_of(texts: Sequence[SweptText], first: Sequence[SweptText], seeds: Sequence[int]) -> Summary:
    """Sum up the texts of a combination. first: those of the first one."""
    own, others = for_each_seed(texts, len(seeds)), for_each_seed(first, len(seeds))
    present = [one for one in own if one.is_there]
    num_tokens = sum(len(one.token_ids) for one in present)
    pairs = [(seed, a, b) for seed, a, b in zip(seeds, own, others, strict=True) if a.is_there and b.is_there]
    return Summary(
        num_texts=sum(one.is_there for one in texts),
        num_tokens=sum(len(one.token_ids) for one in texts),
        logprob_per_token=sum(one.logprob for one in present) / num_tokens if num_tokens else None,
        distinct_1=distinct((one.token_ids for one in present), 1),
        distinct_2=distinct((one.token_ids for one in present), 2),
        tokens_per_text=num_tokens / len(present) if present else None,
        finish_reasons=Counter(str(one.finish_reason) for one in texts if one.is_there),
        num_compared=len(pairs),
        partings=[found for seed, a, b in pairs if (found := _parting(seed, a.token_ids, b.token_ids)) is not None],
    )


def _parting(seed: int, ids: Sequence[int], first_ids: Sequence[int]) -> Parting | None:
    index = first_difference(ids, first_ids)
    if index is None:
        return None
    return Parting(seed=seed, index=index, before=ids[:index], token_id=ids[index], first_token_id=first_ids[index])
