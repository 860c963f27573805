"""Records of what a step decided: plain numbers, no tensors, so that they can be kept, printed and sent."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .errors import MinigenError
from .ranges import Range

FinishReason = Literal["stop", "length", "context", "interrupted", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A token that the model could have chosen at one step."""

    token_id: int
    logit: float  # as the model gave it
    logprob: float  # natural log of its raw probability; −inf for a token the model itself ruled out
    final_prob: float  # what was drawn from; 0 when a filter dropped it
    dropped_by: str | None  # the first stage that dropped it, by its name ("top_p"; "greedy" where nothing is drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one stage of the chain left of a step's distribution."""

    name: str  # "raw" for the model's own, then the names of settings; last "greedy" where temperature is 0
    tokens_left: int
    mass_removed: float  # the probability, before this stage, of the tokens that it dropped
    entropy: float  # of what is left, in bits
    prob: float  # the chosen token's probability after this stage
    rank: int  # the chosen token's rank after this stage, from 1; ties by token id


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The numbers from `low` to `high`; a closed end belongs to it."""

    low: float
    high: float
    is_low_closed: bool = True
    is_high_closed: bool = True

    def __contains__(self, value: float) -> bool:
        is_above = value >= self.low if self.is_low_closed else value > self.low
        return is_above and (value <= self.high if self.is_high_closed else value < self.high)

    def __and__(self, other: "Interval") -> "Interval":
        """Give what two intervals share; it holds no number where they share none."""
        low, is_low_open = max((self.low, not self.is_low_closed), (other.low, not other.is_low_closed))
        high, is_high_closed = min((self.high, self.is_high_closed), (other.high, other.is_high_closed))
        return Interval(low=low, high=high, is_low_closed=not is_low_open, is_high_closed=is_high_closed)


KNOBS = ("temperature", "top_k", "top_p", "min_p")  # the settings that have margins


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """How far one knob could be turned at one step, the others held. A top_k of 0 counts as all tokens."""

    allowed: Interval  # where no filter would have dropped the chosen token
    picked: Interval  # where the same random number still picks it


TEMPERATURES = tuple(16 / n for n in (*range(8, 16), 20, 24))  # 2 to 2/3: where a Leading adds up the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """The highest raw logits of a step, and exactly what the others add up to: enough to draw it again."""

    token_ids: Sequence[int]  # highest logit first, ties by id; the chosen one is always among them
    logits: Sequence[float]
    num_others: int  # tokens that are not listed and that the model did not rule out
    others_logsumexp: float  # natural log of the sum of exp(logit) over those; −inf where there are none
    others_logsumexps: Sequence[float] = ()  # the same of logit / T for each T of TEMPERATURES; empty: not known
    deviation: float  # population standard deviation of all raw logits that the model did not rule out


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a Draw tells besides its token."""

    num_candidates: int = 0  # how many of the likeliest raw tokens it lists
    has_stages: bool = False  # what each stage of the chain did, and the margins
    num_leading: int = 0  # how many of the highest raw logits it keeps
    is_measured: bool = True  # how likely the token was: without it rank is 0, and logprob and entropy are NaN

    @property
    def tells_more(self) -> bool:
        """Whether it tells more than of the token itself."""
        return bool(self.num_candidates or self.has_stages or self.num_leading)

    def __post_init__(self) -> None:
        for name in ("num_candidates", "num_leading"):
            object.__setattr__(self, name, int(Range(int, 0).check(name, getattr(self, name))))
        if self.tells_more:
            object.__setattr__(self, "is_measured", True)


UNINSPECTED = Inspection()
UNMEASURED = Inspection(is_measured=False)  # for texts alone: a tenth of the time of many short steps


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderEffect:
    """What another engine's order left of a step, beside what minigen's own would have left of the same logits."""

    order: str
    tokens_left: int
    own_tokens_left: int  # in minigen's order
    tokens_changed: int  # left by one of the two only


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The chosen token and how it came about. *Raw* means the softmax of the model's own logits."""

    token_id: int
    logit: float
    logprob: float  # natural log of the raw probability
    rank: int  # among the raw logits, from 1; ties by token id
    entropy: float  # of the raw distribution, in bits
    final_prob: float  # in the distribution that was drawn from; 1 when greedy
    u: float | None  # the uniform number behind the draw; None when greedy
    candidates: tuple[Candidate, ...] = ()  # the likeliest raw tokens, and the chosen one
    stages: tuple[Stage, ...] = ()  # in the order of the chain, the raw distribution first
    margins: Mapping[str, Margin | None] = field(default_factory=dict)  # by knob; None: not computed
    leading: Leading | None = None
    order_effect: OrderEffect | None = None  # None in minigen's own order

    @property
    def surprisal(self) -> float:
        """How unexpected the token was, in bits: −log2 of its raw probability."""
        return abs(self.logprob / math.log(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step did for one request."""

    request_id: str
    text: str  # the text that this step made safe to show
    token_id: int | None = None  # None where the step gave no token (an abort or an error)
    draw: Draw | None = None
    finish_reason: FinishReason | None = None
    stop: str | int | None = None  # the stop string, or the end token's id
    error: MinigenError | None = None
