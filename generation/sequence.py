"""A request inside the engine: everything that one sequence needs to go on."""

from dataclasses import dataclass, field
from typing import Any

from .params import SamplingParams
from .sampler import Sampler
from .text import TextStream
from .trace import FinishReason


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """The state of one request. Its ids are the prompt's and then the new ones."""

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    sampler: Sampler
    text: TextStream
    end_token_ids: frozenset[int]
    window: int | None  # tokens, prompt included; None: not known
    token_ids: list[int] = field(default_factory=list)  # the new ones
    num_cached: int = 0  # tokens whose keys and values are in the KV cache
    slot: Any = None  # its own place there, where each sequence has one
    table: list[int] = field(default_factory=list)  # the blocks that hold them, where sequences share a pool
    names: list[int] = field(default_factory=list)  # of those of its blocks that can be found by their tokens

    @property
    def length(self) -> int:
        """The number of tokens, prompt and new ones."""
        return len(self.prompt_ids) + len(self.token_ids)

    @property
    def num_uncached(self) -> int:
        """The number of tokens that a pass must still read before the next one can be drawn."""
        return self.length - self.num_cached

    def ids(self, first: int, last: int) -> tuple[int, ...]:
        """Give the ids from place `first` up to `last`."""
        split = len(self.prompt_ids)
        return (*self.prompt_ids[first:last], *self.token_ids[max(first - split, 0) : max(last - split, 0)])

    @property
    def most_tokens(self) -> int:
        """The most tokens it can come to, prompt and new ones."""
        wanted = len(self.prompt_ids) + self.params.max_new_tokens
        return wanted if self.window is None else min(wanted, self.window)

    def finish_after(self, token_id: int) -> FinishReason | None:
        """Give why the sequence ends with `token_id`, its newest; None if it goes on. Stop strings are the text's."""
        if token_id in self.end_token_ids:
            return "stop"
        if len(self.token_ids) >= self.params.max_new_tokens:
            return "length"
        if self.window is not None and self.length >= self.window:
            return "context"
        return None


@dataclass(frozen=True, slots=True)
class Work:
    """What the next pass reads of one sequence: so many tokens, the first of those that are not cached."""

    sequence: Sequence
    count: int

    @property
    def is_last(self) -> bool:
        """Whether nothing is left to read after it, so that the next token can be drawn."""
        return self.count == self.sequence.num_uncached
