"""The runner with a compiled step, which takes the passes that it was made for and leaves the others to the network."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .blocks import NULL
from .package import Package
from .package_key import BLOCK_SIZE
from .pools import Pools
from .sequence import Work

LEAST_BLOCKS = 2  # that a compiled step reads: the null block fills a shorter table
FEW = 256  # tokens of a prompt that are read one by one sooner than a network is loaded


class CompiledRunner:
    """Runs a sequence's next token through a compiled step; long prompts, and several sequences, through the network.

    Both write the same pools, so that either can go on where the other was. A network that is not yet loaded is loaded
    when it is first needed.
    """

    def __init__(self, network: Any, package: Package, pools: Pools) -> None:
        self._network, self._pools = network, pools
        self._package: Package | None = package
        self._ids, self._positions = torch.zeros(2, 1, dtype=torch.long).unbind()  # (1,) each, written anew each step
        self._blocks: list[int] = []  # of the table that was read last
        self._tables = torch.empty(1, 0, dtype=torch.long)

    def forward(self, works: Sequence[Work]) -> Tensor:
        """Give the logits after each work that leaves nothing to read, `(sequences, vocab)`."""
        if self._package is not None and len(works) == 1 and (works[0].count == 1 or self._is_sooner(works[0].count)):
            try:
                return self._stepped(works[0], self._package)
            except RuntimeError:  # the network can make the same step; it writes over what was written
                self._package = None
        logits: Tensor = self._runner.forward(works)
        return logits

    def _is_sooner(self, count: int) -> bool:
        """Whether so many tokens are read before a network would be there."""
        return count <= FEW and not getattr(self._network, "is_loaded", True)

    @cached_property
    def _runner(self) -> Any:
        from .block_cache import BlockCache
        from .block_runner import BlockRunner

        return BlockRunner(self._network, BlockCache.over(self._pools, self._network.config))

    def _stepped(self, work: Work, package: Package) -> Tensor:
        """Read the tokens of a work one after the other."""
        sequence, first = work.sequence, work.sequence.num_cached
        for position, token_id in enumerate(sequence.ids(first, first + work.count), start=first):
            self._ids.fill_(token_id)
            self._positions.fill_(position)
            tables = self._tables_of(sequence.table[: position // BLOCK_SIZE + 1])
            logits = package.step(self._ids, self._positions, tables, self._pools.tensors)
        return logits if work.is_last else logits[:0]

    def _tables_of(self, blocks: list[int]) -> Tensor:
        """Give a table `(1, blocks)`: that of the last token, for as long as it holds."""
        if blocks != self._blocks:
            self._blocks = blocks
            self._tables = torch.tensor([[*blocks, *[NULL] * (LEAST_BLOCKS - len(blocks))]])
        return self._tables
