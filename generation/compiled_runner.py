"""The runner with a compiled step, which takes the passes that it was made for and leaves the others to the network."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .block_runner import BlockRunner
from .blocks import NULL
from .package_key import BLOCK_SIZE
from .packages import Package
from .sequence import Work

LEAST_BLOCKS = 2  # that a compiled step reads: the null block fills a shorter table


class CompiledRunner:
    """Runs a sequence's next token through a compiled step; prompts, and several sequences, through the network.

    Both write the same pools, so that either can go on where the other was.
    """

    def __init__(self, runner: BlockRunner, package: Package) -> None:
        self._runner = runner
        self._package: Package | None = package
        layers = runner.cache.layers
        self._pools = [*(layer.keys for layer in layers), *(layer.values for layer in layers)]

    def forward(self, works: Sequence[Work]) -> Tensor:
        """Give the logits after each work that leaves nothing to read, `(sequences, vocab)`."""
        if self._package is not None and len(works) == 1 and works[0].count == 1:
            try:
                return self._decode(works[0], self._package)
            except RuntimeError:  # the network can make the same step; it writes over what was written
                self._package = None
        return self._runner.forward(works)

    @torch.inference_mode()
    def _decode(self, work: Work, package: Package) -> Tensor:
        sequence, position = work.sequence, work.sequence.num_cached
        blocks = sequence.table[: position // BLOCK_SIZE + 1]
        table = [*blocks, *[NULL] * (LEAST_BLOCKS - len(blocks))]
        ids = torch.tensor(sequence.ids(position, position + 1))
        logits = package.step(ids, torch.tensor([position]), torch.tensor([table]), self._pools)
        return logits if work.is_last else logits[:0]
