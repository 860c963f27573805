"""The runner with compiled steps, which take the works that they were made for and leave the others to the network."""

from collections.abc import Mapping, Sequence as SequenceOf
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from .blocks import NULL
from .errors import RunError
from .package import Package
from .package_key import BLOCK_SIZE, MOST_ROWS
from .pools import Pools
from .sequence import Sequence, Work

LEAST_BLOCKS = 2  # that a compiled step reads: the null block fills a shorter table
FEW = 256  # tokens of a prompt that are read one by one sooner than a network is loaded
MOST_STEPPED: Final[Mapping[str, int]] = {
    "exact": 12,
    "int8": 32,
}  # by weights, the sequences whose next tokens are read by compiled steps sooner than by a network that is there


class CompiledRunner:
    """Runs next tokens through compiled steps, a few sequences at a time; longer works through the network.

    Both write the same pools, so that either can go on where the other was. A network that is not yet loaded is loaded
    when it is first needed.
    """

    def __init__(self, network: Any, package: Package, pools: Pools) -> None:
        self._network, self._package, self._pools = network, package, pools
        self._widths = {1, MOST_ROWS}  # rows of the steps that have not failed
        self._given = np.zeros((2, 1), np.int64)  # an id and its position, written anew each step
        self._ids, self._positions = torch.from_numpy(self._given).unbind()  # the same memory, (1,) each
        self._blocks: list[int] = []  # of the table that was read last
        self._tables = torch.empty(1, 0, dtype=torch.long)

    def forward(self, works: SequenceOf[Work]) -> Tensor:
        """Give the logits after each work that leaves nothing to read, `(sequences, vocab)`."""
        rows: dict[int, Tensor] = {}  # (1, vocab) each, by the place of its work
        for places in self._groups(works):
            logits = self._stepped([works[place] for place in places])
            if logits is not None:
                rows |= zip(places, _apart(logits), strict=False)  # rows of a step may be left over
        left = [place for place in range(len(works)) if place not in rows]
        if not rows:
            return self._read(works)
        if left:
            logits = self._read([works[place] for place in left])
            rows |= zip([place for place in left if works[place].is_last], _apart(logits), strict=True)
        found = [rows[place] for place, work in enumerate(works) if work.is_last]
        if len(found) > 1:
            return torch.cat(found)
        return found[0] if found else next(iter(rows.values()))[:0]

    def _groups(self, works: SequenceOf[Work]) -> list[list[int]]:
        """Give the places of works for compiled steps, those together that one step reads: sequences of like lengths.

        That is all works of one token; of several only where it is sooner, for a work that has no company.
        """
        is_there = getattr(self._network, "is_loaded", True)
        if len(works) == 1 and not is_there and works[0].count <= FEW:
            places = [0]
        else:
            places = [place for place, work in enumerate(works) if work.count == 1]
        if is_there and len(places) > MOST_STEPPED[self._package.facts.weights]:
            return []
        places.sort(key=lambda place: works[place].sequence.num_cached)
        groups = [places[first : first + MOST_ROWS] for first in range(0, len(places), MOST_ROWS)]
        return [group for group in groups if _width(group) in self._widths]

    def _stepped(self, works: SequenceOf[Work]) -> Tensor | None:
        """Do works that a step reads together; give the logits after each, or None where the step fails.

        The network can make the same step: it writes over what was written.
        """
        try:
            return self._alone(works[0]) if len(works) == 1 else self._together([work.sequence for work in works])
        except (RunError, RuntimeError):
            self._widths.discard(_width(works))
            return None

    def _alone(self, work: Work) -> Tensor:
        """Read the tokens of a work one after the other; give the logits after the last, `(1, vocab)`."""
        sequence, first = work.sequence, work.sequence.num_cached
        for position, token_id in enumerate(sequence.ids(first, first + work.count), start=first):
            self._given[:, 0] = token_id, position
            tables = self._tables_of(sequence.table[: position // BLOCK_SIZE + 1])
            logits = self._package.step(self._ids, self._positions, tables, self._pools.tensors)
        return logits

    def _tables_of(self, blocks: list[int]) -> Tensor:
        """Give a table `(1, blocks)`: that of the last token, for as long as it holds."""
        if blocks != self._blocks:
            self._blocks = blocks
            self._tables = torch.tensor([_filled(blocks, LEAST_BLOCKS)])
        return self._tables

    def _together(self, sequences: SequenceOf[Sequence]) -> Tensor:
        """Read the next token of each sequence; give the logits, `(MOST_ROWS, vocab)`.

        Rows that are left over do what the last sequence does: they write the same into the same place.
        """
        each_row = [*sequences, *[sequences[-1]] * (MOST_ROWS - len(sequences))]
        positions = [each.num_cached for each in each_row]
        ids = [each.ids(at, at + 1)[0] for each, at in zip(each_row, positions, strict=True)]
        most = max(LEAST_BLOCKS, max(positions) // BLOCK_SIZE + 1)
        tables = [
            _filled(each.table[: at // BLOCK_SIZE + 1], most) for each, at in zip(each_row, positions, strict=True)
        ]
        ids_of, at, blocks = map(torch.tensor, (ids, positions, tables))
        return self._package.step(ids_of, at, blocks, self._pools.tensors)

    def _read(self, works: SequenceOf[Work]) -> Tensor:
        logits: Tensor = self._runner.forward(works)
        return logits

    @cached_property
    def _runner(self) -> Any:
        from .block_cache import BlockCache
        from .block_runner import BlockRunner

        return BlockRunner(self._network, BlockCache.over(self._pools, self._network.config))


def _width(works: SequenceOf[Any]) -> int:
    """Give the rows of the step that does so many works."""
    return 1 if len(works) == 1 else MOST_ROWS


def _apart(logits: Tensor) -> list[Tensor]:
    """Give each row for itself, `(1, vocab)`."""
    return [logits] if logits.shape[0] == 1 else [logits[row : row + 1] for row in range(len(logits))]


def _filled(blocks: SequenceOf[int], count: int) -> list[int]:
    """Give a row of a table, filled up with the null block."""
    return [*blocks, *[NULL] * (count - len(blocks))]
