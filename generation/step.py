"""The decode step as one graph: a network rewritten so that a compiler sees plain sums over weights and over blocks.

It reads a token of each of a few rows. Only building a package needs this room; running one does not.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache

from .block_cache import configs_of
from .narrow_layers import realized
from .package_key import BLOCK_SIZE
from .step_attention import NAME, StepLayer, Tables

TURN = "rotate_half"  # what a module of the transformers library calls it


class Step(nn.Module):
    """One token of each row: `(rows,)` ids and positions, `(rows, blocks)` tables, and the pools of every layer.

    Gives the logits, `(rows, vocab)`, float32. Reads and writes the pools of pools.py.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self._windows = [getattr(layer, "sliding_window", None) for layer in DynamicCache(config=network.config).layers]

    def forward(
        self, ids: Tensor, positions: Tensor, tables: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]
    ) -> Tensor:
        """Run the step."""
        heads = torch.arange(keys[0].shape[1])[:, None]
        blocks = tables.gather(1, (positions // BLOCK_SIZE)[:, None])[:, 0]
        parts = blocks * keys[0].shape[1] + heads
        offsets = (positions % BLOCK_SIZE).expand_as(parts)
        pools = zip(keys, values, self._windows, strict=True)
        layers = [StepLayer(key, value, parts, offsets, window) for key, value, window in pools]
        logits: Tensor = self.network(
            input_ids=ids[None],
            position_ids=positions[None],
            cache=Cache(layers=list(layers)),
            use_cache=True,
            layers=layers,
            tables=Tables(tables, positions),
        ).logits[0]
        return logits


def step_of(network: Any) -> Step:
    """Give the step of a network whose layers are narrow: its attention becomes that over blocks."""
    for config in configs_of(network):
        config._attn_implementation_internal = NAME
    for module in list(network.modules()):
        if isinstance(getattr(module, "inv_freq", None), Tensor):  # the cosines and sines that all layers read
            module.register_forward_hook(lambda module, given, turns: tuple(map(realized, turns)))
    return Step(network.eval())


def turned(states: Tensor) -> Tensor:
    """Give (−b, a) for (a, b), the halves of the last dimension: a rotation by 90°.

    As a product, which needs no copy of either half.
    """
    halves = states.view(*states.shape[:-1], 2, -1)
    signs = torch.tensor([-1.0, 1.0])[:, None]
    return (halves.flip(-2) * signs).flatten(-2)


@contextmanager
def turning(network: Any) -> Iterator[None]:
    """Let the layers of a network turn their states by `turned` for as long as it is traced."""
    module: Any = sys.modules[type(network).__module__]
    before = getattr(module, TURN, None)
    if before is None:
        yield
        return
    setattr(module, TURN, turned)
    try:
        yield
    finally:
        setattr(module, TURN, before)
