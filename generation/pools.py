"""The keys and values of many sequences, in blocks: plain tensors, which a network and a compiled step share."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .blocks import NULL


class Pools:
    """Two pools for each layer, `(blocks, key heads, dim, block_size)` for keys and `(…, block_size, dim)` for values.

    So the products of a query with the keys of a block lie side by side. The first block is never given out.
    shapes: key heads and dim of the keys of every layer, then of the values.
    """

    def __init__(
        self, shapes: Sequence[tuple[int, int]], num_blocks: int, block_size: int, *, dtype: torch.dtype, device: str
    ) -> None:
        self.block_size = block_size
        self.tensors = [
            torch.empty((num_blocks + 1, *shape), dtype=dtype, device=device)
            for shape in pool_shapes(shapes, block_size)
        ]  # what is never written is never used, where the system gives memory that way: blocks are cleared when taken
        self.clear([NULL])

    @property
    def layers(self) -> Sequence[tuple[Tensor, Tensor]]:
        """The keys and the values of each layer."""
        half = len(self.tensors) // 2
        return list(zip(self.tensors[:half], self.tensors[half:], strict=True))

    @torch.inference_mode()
    def clear(self, blocks: Sequence[int]) -> None:
        """Forget what stands in blocks."""
        clear_blocks(self.tensors, blocks)

    @torch.inference_mode()
    def copy(self, source: int, target: int) -> None:
        """Write the content of one block into another."""
        for pool in self.tensors:
            pool[target] = pool[source]


def clear_blocks(pools: Sequence[Tensor], blocks: Sequence[int]) -> None:
    """Fill blocks of every pool with 0: a number that is none would spoil even a sum that weighs it with 0.

    Blocks that follow each other are filled at once, by all threads together: memory that is new is slow to come.
    """
    runs: list[slice] = []
    for block in blocks:
        if runs and runs[-1].stop == block:
            runs[-1] = slice(runs[-1].start, block + 1)
        else:
            runs.append(slice(block, block + 1))
    for run in runs:
        for pool in pools:
            pool[run].zero_()


def pool_shapes(shapes: Sequence[tuple[int, int]], block_size: int) -> list[tuple[int, int, int]]:
    """Give the shape of a block in each pool. shapes: heads and dim, of the keys of every layer, then of the values."""
    half = len(shapes) // 2
    keys = [(heads, dim, block_size) for heads, dim in shapes[:half]]
    return [*keys, *[(heads, block_size, dim) for heads, dim in shapes[half:]]]


def bytes_per_block(shapes: Sequence[tuple[int, int]], block_size: int, *, item_size: int) -> int:
    """Give the bytes of one block in all pools."""
    return sum(heads * dim for heads, dim in shapes) * block_size * item_size
