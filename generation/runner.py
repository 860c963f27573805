"""The runner: forward passes of the model, and nothing else."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cache import is_used_by, new_slot, takes_parts
from .sequence import Work

CHUNK = 1024  # tokens of a prompt per forward pass: bounds the memory of a long prefill


class Runner:
    """Runs a causal model over one sequence's new ids, with its slot in the KV cache.

    A model without such a cache runs over all ids each time: its slot is the list of them.
    """

    def __init__(self, network: Any, *, chunk: int = CHUNK) -> None:
        self.chunk = chunk
        self.network, self.device = network, getattr(network, "device", "cpu")  # of its first layer where it is spread
        names = inspect.signature(getattr(network, "forward", network)).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values())
        self._cache_name = "past_key_values" if "past_key_values" in names and "cache" not in names else "cache"
        self._has_slots = is_used_by(network)
        self._takes_positions = "position_ids" in names or (takes_any and "cache" not in names)
        self._takes_keep = "logits_to_keep" in names or (takes_any and "cache" not in names)

    def forward(self, works: Sequence[Work]) -> Tensor:
        """Read what is left of one sequence, in its own slot; give the logits after it, `(1, vocab)`."""
        [work] = works
        sequence = work.sequence
        first, last = sequence.num_cached, sequence.length
        if sequence.slot is None:
            sequence.slot = self.new_slot(sequence.most_tokens)
            return self.prefill(sequence.ids(first, last), sequence.slot)[None]
        [token_id] = sequence.ids(first, last)
        return self.decode(token_id, first, sequence.slot)[None]

    def new_slot(self, limit: int | None) -> Any:
        """Give an empty place in the KV cache for a sequence of at most `limit` tokens."""
        return new_slot(getattr(self.network, "config", None), limit) if self._has_slots else []

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int], slot: Any) -> Tensor:
        """Run over a whole prompt, in chunks if the model allows; give the logits after its last token, `(vocab,)`."""
        size = self.chunk if self.takes_parts(slot) else len(ids)
        for first in range(0, len(ids), size):
            logits = self._forward(ids[first : first + size], first, slot)
        return logits

    @torch.inference_mode()
    def rows(self, ids: Sequence[int], first: int, slot: Any, count: int) -> Tensor:
        """Run over new ids, the first at position `first`; give the logits after the last `count`, `(count, vocab)`."""
        return self._rows(ids, first, slot, count)

    def takes_parts(self, slot: Any) -> bool:
        """Tell whether ids may come in several passes of several ids each."""
        return self._has_slots and takes_parts(slot)

    @torch.inference_mode()
    def decode(self, token_id: int, position: int, slot: Any) -> Tensor:
        """Run over one new token; give the logits after it, `(vocab,)`."""
        return self._forward([token_id], position, slot)

    def _forward(self, ids: Sequence[int], first: int, slot: Any) -> Tensor:
        return self._rows(ids, first, slot, 1)[-1]

    def _rows(self, ids: Sequence[int], first: int, slot: Any, count: int) -> Tensor:
        given: dict[str, Any] = {}
        if self._has_slots:
            given |= {"use_cache": True, self._cache_name: slot}
        else:
            slot += ids
            ids, first = slot, 0
        if self._takes_positions:
            given["position_ids"] = torch.arange(first, first + len(ids), device=self.device)[None]  # (1, new)
        if self._takes_keep:
            given["logits_to_keep"] = count  # only the last rows: a prompt × vocabulary matrix is never made
        input_ids = torch.tensor([ids], device=self.device)  # (1, new)
        logits: Tensor = self.network(input_ids=input_ids, **given).logits[0, -count:]
        return logits
