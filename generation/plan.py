"""The plan of a pass over many sequences: where each token's key and value go, and which keys it sees.

The tokens of a pass stand one after the other in a single row, `(1, tokens, …)`: first those of sequences that read one
token each (*rows*), then those of sequences that read several (*chunks*).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .blocks import NULL


@dataclass(frozen=True, slots=True)
class Reading:
    """What a pass reads of one sequence: new ids, after `context` others whose keys and values its blocks hold."""

    table: Sequence[int]
    context: int
    ids: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Several tokens of one sequence: those from `first` up to `last` of the pass, after `context` earlier ones."""

    first: int
    last: int
    context: int
    table: Tensor  # (blocks,) of the sequence


@dataclass(slots=True, kw_only=True)
class Plan:
    """What each token of a pass writes and reads. Blocks hold `block_size` tokens."""

    block_size: int
    blocks: Tensor  # (tokens,) the block that each token's key and value are written to
    offsets: Tensor  # (tokens,) and its place in there
    tables: Tensor  # (rows, blocks) what each row reads, filled up with the null block
    lengths: Tensor  # (rows,) how many keys each row sees, its own token among them
    chunks: Sequence[Chunk] = ()
    _made: dict[Any, Tensor] = field(default_factory=dict)  # for the layers that follow

    @property
    def num_rows(self) -> int:
        """The number of sequences that read one token."""
        return len(self.lengths)

    def written(self, heads: int) -> tuple[Tensor, Tensor]:
        """Give where a layer of so many key heads writes each token, `(heads · tokens,)` twice.

        Parts of its pool seen as `(blocks · heads, …)`, and the places in there.
        """
        parts = self._once(("write", heads), lambda: _by_head(self.blocks, heads).flatten())
        return parts, self._once(("offsets", heads), lambda: self.offsets.repeat(heads))

    def read(self, heads: int) -> Tensor:
        """Give what each row reads of a pool seen as `(blocks · heads, block_size, dim)`: `(rows, heads, blocks)`."""
        return self._once(("read", heads), lambda: _by_head(self.tables, heads))

    def chunk_read(self, chunk: Chunk, heads: int) -> Tensor:
        """Give the same for a chunk: `(heads, blocks)`."""
        return self._once(("chunk read", chunk.first, heads), lambda: _by_head(chunk.table, heads))

    def mask(self, window: int | None) -> Tensor:
        """Give 0 where a row sees a key and −inf where it does not, `(rows, 1, 1, keys)`, float32."""
        return self._once(("mask", window), lambda: self._row_mask(window))

    def chunk_mask(self, chunk: Chunk, window: int | None) -> Tensor | None:
        """Give where each token of a chunk sees each key, `(tokens, keys)`; None where it is the plain triangle."""
        num_keys = chunk.context + chunk.last - chunk.first
        window = None if window is None or window >= num_keys else window
        if chunk.context == 0 and window is None:
            return None
        return self._once(("chunk", chunk.first, window), lambda: self._chunk_mask(chunk, num_keys, window))

    def _once(self, key: Any, make: Callable[[], Tensor]) -> Tensor:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _row_mask(self, window: int | None) -> Tensor:
        places = torch.arange(self.tables.shape[1] * self.block_size, device=self.lengths.device)
        lengths = self.lengths[:, None]
        is_hidden = places >= lengths
        if window is not None:
            is_hidden |= places < lengths - window
        return torch.zeros(is_hidden.shape, device=places.device).masked_fill_(is_hidden, -torch.inf)[:, None, None]

    def _chunk_mask(self, chunk: Chunk, num_keys: int, window: int | None) -> Tensor:
        seen = torch.ones(chunk.last - chunk.first, num_keys, dtype=torch.bool, device=self.blocks.device)
        seen = seen.tril(chunk.context)
        return seen if window is None else seen.triu(chunk.context - window + 1)


def _by_head(tables: Tensor, heads: int) -> Tensor:
    """Give the parts `(…, heads, blocks)` of the blocks `(…, blocks)`."""
    return tables[..., None, :] * heads + torch.arange(heads, device=tables.device)[:, None]


def planned(readings: Sequence[Reading], block_size: int, device: Any) -> Plan:
    """Give the plan of a pass over readings, those of a single token first."""
    rows = [each for each in readings if len(each.ids) == 1]
    places = [
        (each.table[at // block_size], at % block_size)
        for each in readings
        for at in range(each.context, each.context + len(each.ids))
    ]
    blocks, offsets = torch.tensor(places, device=device).unbind(1)
    most = max((each.context // block_size + 1 for each in rows), default=0)
    tables = [[*each.table[:most], *[NULL] * (most - len(each.table))] for each in rows]
    return Plan(
        block_size=block_size,
        blocks=blocks,
        offsets=offsets,
        tables=torch.tensor(tables, dtype=torch.long, device=device).view(len(rows), most),
        lengths=torch.tensor([each.context + 1 for each in rows], dtype=torch.long, device=device),
        chunks=_chunks(readings[len(rows) :], len(rows), device),
    )


def _chunks(readings: Sequence[Reading], first: int, device: Any) -> list[Chunk]:
    chunks = []
    for each in readings:
        last = first + len(each.ids)
        table = torch.tensor(each.table, dtype=torch.long, device=device)
        chunks.append(Chunk(first=first, last=last, context=each.context, table=table))
        first = last
    return chunks
