"""The runner over blocks: one forward pass for many sequences at once."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .attention import Workspace
from .block_cache import BlockCache, block_attention, configs_of
from .last_mlp import kept_alone, last_mlp_of
from .plan import Plan, Reading, planned
from .rotary import quick_rotary, rotary_rooms
from .sequence import Work


class BlockRunner:
    """Runs a causal model over new ids of many sequences, whose keys and values stand in blocks."""

    def __init__(self, network: Any, cache: BlockCache) -> None:
        self.network, self.device, self.cache = network, network.device, cache
        self._configs = configs_of(network)
        self._last_mlp, self._rotary_rooms = last_mlp_of(network), rotary_rooms(network)

    def forward(self, works: Sequence[Work]) -> Tensor:
        """Give the logits after each work that leaves nothing to read, `(sequences, vocab)`."""
        readings = [
            Reading(each.table, each.num_cached, each.ids(each.num_cached, each.num_cached + work.count))
            for work in works
            for each in [work.sequence]
        ]
        return self.read(readings, [i for i, work in enumerate(works) if work.is_last])

    @torch.inference_mode()
    def read(self, readings: Sequence[Reading], wanted: Sequence[int]) -> Tensor:
        """Run one pass; give the logits after the last id of each wanted reading, `(wanted, vocab)`."""
        order = sorted(range(len(readings)), key=lambda i: len(readings[i].ids) > 1)
        ordered = [readings[i] for i in order]
        ids = [token_id for each in ordered for token_id in each.ids]
        positions = [at for each in ordered for at in range(each.context, each.context + len(each.ids))]
        last, end = [0] * len(readings), -1
        for i in order:
            end += len(readings[i].ids)
            last[i] = end
        kept = [last[i] for i in wanted] or [0]  # one row at least
        plan = planned(ordered, self.cache.block_size, self.device)
        given = torch.tensor([ids], device=self.device), torch.tensor([positions], device=self.device)
        return self.run(*given, torch.tensor(kept, device=self.device), plan)[: len(wanted)]

    def run(
        self, ids: Tensor, positions: Tensor, kept: Tensor | int, plan: Plan, workspace: Workspace | None = None
    ) -> Tensor:
        """Run the network over the tokens of a plan; give the logits after those that are kept, `(kept, vocab)`.

        ids, positions: `(1, tokens)`; kept: the places of tokens, or 0 for all; workspace: if not the cache's own.
        """
        with (
            block_attention(self._configs),
            kept_alone(self._last_mlp, kept, ids.shape[1]),
            quick_rotary(self._rotary_rooms),
            self.cache.passing(plan, workspace) as given,
        ):
            logits: Tensor = self.network(
                input_ids=ids, position_ids=positions, logits_to_keep=kept, use_cache=True, **given
            ).logits[0]
        return logits
