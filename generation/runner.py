"""The runner: forward passes of the model, and nothing else."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cache import is_used_by, new_slot, takes_parts
from .facts import rotary_switch_of
from .sequence import Work


class Runner:
    """Runs a causal model over one sequence's new ids, with its slot in the KV cache.

    A model without such a cache runs over all ids each time: its slot is the list of them.
    """

    def __init__(self, network: Any) -> None:
        self.network, self.device = network, getattr(network, "device", "cpu")  # of its first layer where it is spread
        names = inspect.signature(getattr(network, "forward", network)).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values())
        self._cache_name = "past_key_values" if "past_key_values" in names and "cache" not in names else "cache"
        self._has_slots = is_used_by(network)
        self._switch = rotary_switch_of(getattr(network, "config", None))
        self._takes_positions = "position_ids" in names or (takes_any and "cache" not in names)
        self._takes_keep = "logits_to_keep" in names or (takes_any and "cache" not in names)

    def forward(self, works: Sequence[Work]) -> Tensor:
        """Read the next tokens of one sequence into its own slot.

        Give the logits after them, `(1, vocab)`; none, `(0, vocab)`, where others of its tokens are still to be read.
        """
        [work] = works
        sequence = work.sequence
        first, last = sequence.num_cached, sequence.num_cached + work.count
        if self._switch is not None and first <= self._switch < last:
            first, sequence.slot = 0, None  # the keys so far are of a shorter text
        if sequence.slot is None:
            sequence.slot = self.new_slot(sequence.most_tokens)
        try:
            logits = self.rows(sequence.ids(first, last), first, sequence.slot, 1)
        except BaseException:  # some layers have read the ids and others have not
            sequence.slot, sequence.num_cached = None, 0
            raise
        return logits if work.is_last else logits[:0]

    def new_slot(self, limit: int | None) -> Any:
        """Give an empty place in the KV cache for a sequence of at most `limit` tokens."""
        return new_slot(getattr(self.network, "config", None), limit) if self._has_slots else []

    @torch.inference_mode()
    def rows(self, ids: Sequence[int], first: int, slot: Any, count: int) -> Tensor:
        """Run over new ids, the first at position `first`; give the logits after the last `count`, `(count, vocab)`."""
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

    def takes_parts(self, slot: Any) -> bool:
        """Tell whether ids may come in several passes of several ids each."""
        return self._has_slots and self._switch is None and takes_parts(slot)
