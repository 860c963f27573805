"""The blocks of each sequence: taken as it grows, shared where its beginning is known, given back at its end."""

from collections.abc import Callable, Iterable

from .blocks import ROOT, BlockPool
from .errors import ParameterError
from .sequence import Sequence


class BlockTables:
    """Keeps the tables of sequences on one pool.

    Blocks that are shared are full, and never written again: a sequence writes into blocks of its own.
    clear, copy: what is done to the keys and values of blocks, and from one block to another.
    """

    def __init__(
        self, pool: BlockPool, *, clear: Callable[[list[int]], None], copy: Callable[[int, int], None]
    ) -> None:
        self.pool = pool
        self._clear, self._copy = clear, copy

    def check_fits(self, sequence: Sequence) -> None:
        """Raise ParameterError for a sequence that the whole pool could not hold."""
        room = self.pool.num_blocks * self.pool.block_size
        if sequence.most_tokens > room:
            raise ParameterError(
                "max_new_tokens",
                sequence.params.max_new_tokens,
                f"such that the {len(sequence.prompt_ids)} tokens of the prompt and the new ones fit the KV memory, "
                f"which holds {room} tokens",
            )

    def adopt(self, sequence: Sequence) -> None:
        """Take over the blocks of the longest known beginning. At least one token is left to be read."""
        while (found := self._known(sequence)) is not None:
            name, block = found
            self.pool.share(block)
            sequence.table.append(block)
            sequence.names.append(name)
            sequence.num_cached += self.pool.block_size

    def is_being_read(self, sequence: Sequence, others: Iterable[Sequence]) -> bool:
        """Tell whether another sequence is about to read what this one needs next, so that it pays to wait."""
        last = sequence.num_cached + self.pool.block_size
        if last >= sequence.length:
            return False
        wanted = sequence.ids(0, last)
        return any(each.num_cached < last <= each.length and each.ids(0, last) == wanted for each in others)

    def portion(self, sequence: Sequence, budget: int) -> int:
        """Give how many tokens the next pass reads where it may read so many."""
        return min(sequence.num_uncached, budget)

    def grow(self, sequence: Sequence, num_tokens: int, *, spare: int = 0) -> bool:
        """Take blocks until so many tokens fit.

        Where blocks are missing and fewer than `spare` would stay free, take none and give False.
        """
        missing = -(-num_tokens // self.pool.block_size) - len(sequence.table)
        if missing > 0 and missing + spare > self.pool.num_free:
            return False
        if missing > 0:
            taken = [self.pool.take() for _ in range(missing)]
            try:
                self._clear(sorted(taken))  # those side by side at once
            except BaseException:
                self.pool.release(taken)
                raise
            sequence.table += taken
        return True

    def publish(self, sequence: Sequence) -> None:
        """Let the blocks that have become full be found by their tokens."""
        size = self.pool.block_size
        for place in range(len(sequence.names), sequence.num_cached // size):
            tokens = sequence.ids(place * size, (place + 1) * size)
            before = sequence.names[-1] if sequence.names else ROOT
            sequence.names.append(self.pool.publish(sequence.table[place], before, tokens))

    def fork(self, source: Sequence, sequence: Sequence) -> bool:
        """Let a sequence start with all that another has cached; do nothing and give False where no block is free.

        Full blocks are shared, the one that is partly filled is copied.
        """
        full = source.num_cached // self.pool.block_size
        if source.num_cached % self.pool.block_size and not self.pool.num_free:
            return False
        for block in source.table[:full]:
            self.pool.share(block)
        sequence.table = source.table[:full]
        sequence.names = source.names[:full]
        sequence.num_cached = source.num_cached
        if source.num_cached % self.pool.block_size:
            sequence.table.append(self.pool.take())
            self._copy(source.table[full], sequence.table[full])
        return True

    def release(self, sequence: Sequence) -> None:
        """Give all blocks of a sequence back; what it has read, it must read again."""
        self.pool.release(sequence.table)
        sequence.table, sequence.names, sequence.num_cached = [], [], 0

    def _known(self, sequence: Sequence) -> tuple[int, int] | None:
        first, size = sequence.num_cached, self.pool.block_size
        if first + size >= sequence.length:
            return None
        before = sequence.names[-1] if sequence.names else ROOT
        return self.pool.find(before, sequence.ids(first, first + size))
