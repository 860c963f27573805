"""The attention of a compiled step, and the cache that it reads: sums over blocks where they lie, none copied together.

What shares a block is summed side by side, so that memory is read once and in the order in which it lies.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from .attention import check_asked, check_window
from .narrow_layers import realized
from .package_key import BLOCK_SIZE
from .pooled_layer import PooledLayer
from .twelve_bits import LANES

NAME = "minigen_step"
PIECES = 4  # of a block of keys, or of the numbers of a value, that are summed side by side
SUMS = (4, 3, 2, 5, 7, 1)  # how many queries of a key head are, the first of these that divides their number


class StepLayer(PooledLayer):  # type: ignore[no-untyped-call]  # as there
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


class Tables:
    """Which blocks each row of a step reads, `(rows, blocks)`, and which keys there it sees."""

    def __init__(self, tables: Tensor, positions: Tensor) -> None:
        self.tables, self._positions = tables, positions[:, None, None]
        self._places = torch.arange(tables.shape[1] * BLOCK_SIZE).view(-1, BLOCK_SIZE)

    def hidden(self, window: int | None) -> Tensor:
        """Give where a row does not see a key: `(rows, blocks, 1, 1, PIECES, 1, block_size / PIECES)`."""
        is_hidden = self._places > self._positions
        if window is not None:
            is_hidden = is_hidden | (self._places <= self._positions - window)
        return is_hidden.view(*is_hidden.shape[:2], 1, 1, PIECES, 1, -1)


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
    sums = next(number for number in SUMS if heads // groups % number == 0)
    grouped = query[0].transpose(0, 1).reshape(rows, 1, groups, sums, -1, dim, 1)
    queries = realized(grouped * (dim**-0.5 if scaling is None else scaling)).unbind(3)
    keys = layer.keys[tables.tables].unsqueeze(3)  # (rows, blocks, groups, 1, dim, block_size)
    scores = _side_by_side([(part * piece).sum(-2) for part in queries for piece in keys.chunk(PIECES, -1)], sums)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = realized(torch.where(tables.hidden(layer.window), -torch.inf, scores))
    weights, total = _weighed(scores, None if s_aux is None else s_aux.float().view(1, 1, groups, sums, 1, -1, 1))
    weighing = weights.transpose(4, 5).unsqueeze(-1).unbind(3)  # each (rows, blocks, groups, rest, PIECES, lanes, 1)
    wide = value.shape[3]
    values = layer.values[tables.tables].view(rows, -1, groups, 1, PIECES, BLOCK_SIZE // PIECES, wide)
    pieces = values.chunk(_num_pieces(wide), -1)
    partial = _side_by_side([(weight * piece).sum((4, 5)) for weight in weighing for piece in pieces], sums)
    summed = realized(partial).sum(1).transpose(3, 4).reshape(1, rows, heads, wide)
    return summed / realized(total).view(1, rows, heads, 1), None


def _weighed(scores: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
    """Give what scores weigh, the highest of a query 1, and what they weigh together: a softmax before it is divided.

    scores: `(rows, blocks, groups, sums, PIECES, rest, lanes)`; sinks: the same, of what may be looked at instead of
    any key. Gives weights like the scores, and their sums, `(rows, groups, sums, rest)`.
    """
    highest = scores.amax((1, 4, 6), keepdim=True)
    if sinks is not None:
        highest = torch.maximum(highest, sinks)
    weights = realized((scores - highest).exp())
    total = weights.sum((1, 4, 6))
    if sinks is not None:
        total = total + (sinks - highest).exp()[:, 0, :, :, 0, :, 0]
    return weights, total


def _num_pieces(dim: int) -> int:
    """Give in how many pieces values are summed side by side: of whole registers, or in one."""
    return next((pieces for pieces in (PIECES, PIECES // 2) if dim % (pieces * LANES) == 0), 1)


def _side_by_side(parts: Sequence[Tensor], sums: int) -> Tensor:
    """Give parts `(rows, blocks, groups, rest, lanes)` as `(rows, blocks, groups, sums, pieces, rest, lanes)`."""
    stacked = torch.stack(list(parts), 3)
    return stacked.view(*stacked.shape[:3], sums, -1, *stacked.shape[4:])


AttentionInterface.register(NAME, attend)
