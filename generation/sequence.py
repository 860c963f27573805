"""A request inside the engine: everything that one sequence needs to go on."""

from dataclasses import dataclass, field
from typing import Any

from .params import SamplingParams
from .sampler import Sampler
from .text import TextStream
from .trace import FinishReason


@dataclass(slots=True, kw_only=True)
class Sequence:
    """The state of one request. Its ids are the prompt's and then the new ones."""

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    sampler: Sampler
    text: TextStream
    end_token_ids: frozenset[int]
    window: int | None  # tokens, prompt included; None: not known
    slot: Any = None  # its place in the KV cache while it runs
    token_ids: list[int] = field(default_factory=list)  # the new ones

    @property
    def length(self) -> int:
        """The number of tokens, prompt and new ones."""
        return len(self.prompt_ids) + len(self.token_ids)

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
