"""The decode step as one graph: a network rewritten so that a compiler sees plain sums over weights and over blocks.

It reads a token of each of a few rows. Only building a package needs this room; running one does not.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from .attention import check_asked, check_window
from .block_cache import configs_of
from .narrow_layers import realized
from .package_key import BLOCK_SIZE

NAME = "minigen_step"
TURN = "rotate_half"  # what a module of the transformers library calls it
PARTS = 4  # of a block of keys, or of the numbers of a value: summed side by side, so that memory is read as it lies
MOST_SUMS = 4  # of the queries of a key head, side by side over each key or value
LANES = 16  # float32 numbers that a processor works on at once


class StepLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # the library's class hook has no types
    """The pool of one layer during a step: new keys and values are written, which are not read back."""

    is_compileable = True

    def __init__(self, keys: Tensor, values: Tensor, parts: Tensor, offsets: Tensor, window: int | None) -> None:
        self.keys, self.values, self.window = keys, values, window
        self._parts, self._offsets = parts, offsets  # (key heads, rows): block and head, and the place in there
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Have nothing to do."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the keys and values of the step, `(1, key heads, rows, dim)`, and give them back."""
        assert self.keys is not None
        assert self.values is not None
        dim, wide = key_states.shape[3], value_states.shape[3]
        scattered = (self._parts[..., None] * dim + torch.arange(dim)) * BLOCK_SIZE + self._offsets[..., None]
        self.keys.view(-1).index_copy_(0, scattered.flatten(), key_states.flatten())
        places = self._parts * BLOCK_SIZE + self._offsets
        self.values.view(-1, wide).index_copy_(0, places.flatten(), value_states.reshape(-1, wide))
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Give no past: the tables know it."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Give 0: positions come with the step."""
        return 0

    def get_max_length(self) -> int:
        """Give −1: there is no limit but the pool's."""
        return -1


class Tables:
    """Which blocks each row of a step reads, `(rows, blocks)`, and which keys there it sees."""

    def __init__(self, tables: Tensor, positions: Tensor) -> None:
        self.tables, self._positions = tables, positions[:, None, None]
        self._places = torch.arange(tables.shape[1] * BLOCK_SIZE).view(-1, BLOCK_SIZE)

    def hidden(self, window: int | None) -> Tensor:
        """Give where a row does not see a key: `(rows, blocks, 1, 1, PARTS, 1, block_size / PARTS)`."""
        is_hidden = self._places > self._positions
        if window is not None:
            is_hidden = is_hidden | (self._places <= self._positions - window)
        return is_hidden.view(*is_hidden.shape[:2], 1, 1, PARTS, 1, -1)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layers: Sequence[StepLayer] = (),
    tables: Tables | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend for rows of one token each, as sums that need no gathered copy: `(1, rows, heads, dim)`.

    query: `(1, heads, rows, dim)`. Raises RunError where the model asks for something that is not known here.
    """
    check_asked(others, is_more=tables is None or attention_mask is not None or dropout > 0)
    assert tables is not None
    layer = layers[module.layer_idx]
    check_window(sliding_window, layer.window)
    assert layer.keys is not None
    assert layer.values is not None
    _, heads, rows, dim = query.shape
    groups = layer.keys.shape[1]  # of query heads, each with a key head
    sums, each = _split(heads // groups)
    grouped = query[0].transpose(0, 1).reshape(rows, 1, groups, sums, each, dim, 1)
    queries = realized(grouped * (dim**-0.5 if scaling is None else scaling)).unbind(3)
    keys = layer.keys[tables.tables].unsqueeze(3)  # (rows, blocks, groups, 1, dim, block_size)
    scores = _side_by_side([(part * keys_).sum(-2) for part in queries for keys_ in keys.chunk(PARTS, -1)], sums)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = realized(torch.where(tables.hidden(layer.window), -torch.inf, scores))
    highest = scores.amax((1, 4, 6), keepdim=True)
    sinks = None if s_aux is None else s_aux.float().view(1, 1, groups, sums, 1, each, 1)
    if sinks is not None:
        highest = torch.maximum(highest, sinks)
    weights = realized((scores - highest).exp())
    total = weights.sum((1, 4, 6))
    if sinks is not None:
        total = total + (sinks - highest).exp()[:, 0, :, :, 0, :, 0]
    weighing = weights.transpose(4, 5).unsqueeze(-1).unbind(3)  # each (rows, blocks, groups, each, PARTS, lanes, 1)
    values = layer.values[tables.tables].view(rows, -1, groups, 1, PARTS, BLOCK_SIZE // PARTS, value.shape[3])
    parts = values.chunk(_num_parts(values.shape[-1]), -1)
    partial = _side_by_side([(weight * value_).sum((4, 5)) for weight in weighing for value_ in parts], sums)
    summed = realized(partial).sum(1).transpose(3, 4).reshape(1, rows, heads, -1)
    return realized(summed / realized(total).view(1, rows, heads, 1)), None


def _split(queries: int) -> tuple[int, int]:
    """Give how many of the queries of a key head are summed side by side, and how often."""
    sums = next(each for each in range(MOST_SUMS, 0, -1) if queries % each == 0)
    return sums, queries // sums


def _num_parts(dim: int) -> int:
    """Give in how many parts values are summed side by side: of whole registers, or in one."""
    return next((parts for parts in (PARTS, PARTS // 2) if dim % (parts * LANES) == 0), 1)


def _side_by_side(sums: Sequence[Tensor], queries: int) -> Tensor:
    """Give sums `(rows, blocks, groups, each, lanes)` as `(rows, blocks, groups, queries, parts, each, lanes)`."""
    stacked = torch.stack(list(sums), 3)
    return stacked.view(*stacked.shape[:3], queries, -1, *stacked.shape[4:])


AttentionInterface.register(NAME, attend)


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
