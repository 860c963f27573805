"""Records of what a step decided: plain numbers, no tensors, so that they can be kept, printed and sent."""

from dataclasses import dataclass
from typing import Literal

from .errors import MinigenError

FinishReason = Literal["stop", "length", "context", "interrupted", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A token that the model could have chosen at one step."""

    token_id: int
    logit: float  # as the model gave it
    logprob: float  # natural log of its raw probability; −inf for a token the model itself ruled out
    final_prob: float  # what was drawn from; 0 when a filter dropped it
    dropped_by: str | None  # the first filter that dropped it, by its setting's name ("top_p")


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
