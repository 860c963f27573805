"""The runner with graphs: a step in which every sequence reads one token is one copy to the device and one replay."""

from collections.abc import Sequence as SequenceOf
from functools import partial

import torch
from torch import Tensor

from .attention import Workspace
from .block_runner import BlockRunner
from .blocks import NULL
from .graphs import Capture, Graphs, StaticInput, bucket
from .plan import Plan
from .sequence import Sequence, Work

LEAST_BLOCKS = 4  # of a table: a short text then needs one graph, and hardly more time

ID, POSITION, TABLE = 0, 1, 2  # the columns of a step's input; the blocks of a row's table begin with the last


class GraphRunner:
    """Replays a graph where every work reads one token and leaves nothing to read; other passes are the block runner's.

    There is a graph for each power of two of rows and of blocks that a row reads. Rows that are left over do what the
    last sequence does: they write the same into the same place, and nobody looks at their logits.
    """

    def __init__(self, runner: BlockRunner, capture: Capture) -> None:
        self._runner, self._graphs = runner, Graphs(capture)
        self._inputs: dict[tuple[int, int], StaticInput] = {}  # by rows and blocks

    @property
    def failure(self) -> str | None:
        """Why there are no graphs any more; None while there are."""
        return self._graphs.failure

    @torch.inference_mode()
    def forward(self, works: SequenceOf[Work]) -> Tensor:
        """Give the logits after each work that leaves nothing to read, `(sequences, vocab)`.

        They stand there until the next call.
        """
        logits = None
        if self._graphs.are_open and all(work.count == 1 and work.is_last for work in works):
            logits = self._replayed([work.sequence for work in works])
        return self._runner.forward(works) if logits is None else logits

    def _replayed(self, sequences: SequenceOf[Sequence]) -> Tensor | None:
        """Give the logits of the next token of each sequence; None where there are no graphs any more."""
        size = self._runner.cache.block_size
        rows = bucket(len(sequences))
        blocks = bucket(max(each.num_cached // size + 1 for each in sequences), LEAST_BLOCKS)
        if (rows, blocks) not in self._inputs:
            self._inputs[rows, blocks] = StaticInput((rows, TABLE + blocks), torch.int64, self._runner.device)
        given = self._inputs[rows, blocks]
        numbers = given.numbers()
        for row, each in enumerate(sequences):
            at, table = each.num_cached, each.table[: each.num_cached // size + 1]
            numbers[row, ID], numbers[row, POSITION] = *each.ids(at, at + 1), at
            numbers[row, TABLE : TABLE + len(table)] = table
            numbers[row, TABLE + len(table) :] = NULL
        numbers[len(sequences) :] = numbers[len(sequences) - 1]
        logits = self._graphs.result((rows, blocks), partial(self.step, given.send()))
        return None if logits is None else logits[: len(sequences)]

    def step(self, given: Tensor) -> Tensor:
        """Read one token a row and give the logits after it, `(rows, vocab)`; all is made of `given`, on its device.

        given: `(rows, 2 + blocks)`, int64: the id, its position, and the table.
        """
        size = self._runner.cache.block_size
        ids, positions, tables = given[:, ID], given[:, POSITION], given[:, TABLE:]
        plan = Plan(
            block_size=size,
            blocks=tables.gather(1, (positions // size)[:, None])[:, 0],
            offsets=positions % size,
            tables=tables,
            lengths=positions + 1,
        )
        workspace = Workspace()  # of the graph's own memory, which stays as long as the graph
        return self._runner.run(ids[None], positions[None], 0, plan, workspace)
