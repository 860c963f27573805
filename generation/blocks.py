"""The block pool: which blocks of the KV cache are used, by how many sequences, and which tokens stand in them.

A block holds the keys and values of `block_size` tokens that follow each other. This room counts; it holds no tensor.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import count

NULL = 0  # never given out: rows that stand for nothing read and write it
ROOT = 0  # what stands before a sequence's first block

Content = tuple[int, tuple[int, ...]]  # what stands before a block, and its own tokens


class BlockPool:
    """Gives out blocks, counts their owners, and finds full ones again by their tokens.

    A full block may be published under the tokens in it and the name of what stands before them, which is itself the
    name of a published block: a name so stands for all tokens from the first on. The tokens themselves are compared,
    never a hash of them alone. A block that nobody owns any more stays findable until it is given out again, those
    released longest ago first.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.owners = [0] * (num_blocks + 1)  # by block; the null block is not counted as one of the pool's
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks + 1))  # the next to go first
        self._names = count(ROOT + 1)
        self._published: dict[Content, tuple[int, int]] = {}  # the name and the block
        self._contents: dict[int, Content] = {}  # by published block

    @property
    def num_free(self) -> int:
        """The number of blocks that nobody owns."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """The number of blocks that somebody owns."""
        return self.num_blocks - len(self._free)

    def take(self) -> int:
        """Give a free block to its first owner; what stood in it is forgotten. KeyError where none is free."""
        block, _ = self._free.popitem(last=False)
        if (content := self._contents.pop(block, None)) is not None:
            del self._published[content]
        self.owners[block] = 1
        return block

    def share(self, block: int) -> None:
        """Give a block one more owner."""
        self._free.pop(block, None)
        self.owners[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Take one owner from each block of a sequence, given in order.

        The last block is freed first, so that what is common to many sequences stays findable longest. A block that
        cannot be found again is the next to be given out.
        """
        for block in reversed(blocks):
            assert self.owners[block] > 0
            self.owners[block] -= 1
            if self.owners[block] == 0:
                self._free[block] = None
                if block not in self._contents:
                    self._free.move_to_end(block, last=False)

    def publish(self, block: int, before: int, tokens: Iterable[int]) -> int:
        """Let a full block be found, and give the name of its content; one that is known already keeps its block."""
        content = (before, tuple(tokens))
        if content not in self._published:
            self._published[content] = next(self._names), block
            self._contents[block] = content
        return self._published[content][0]

    def find(self, before: int, tokens: Iterable[int]) -> tuple[int, int] | None:
        """Give the name and the block of a content; None where it is not known."""
        return self._published.get((before, tuple(tokens)))
