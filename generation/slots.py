"""A place of its own in the KV cache for each sequence: for models whose past cannot be cut into blocks."""

from collections.abc import Iterable

from .sequence import Sequence


class Slots:
    """Answers the scheduler as BlockTables does: a slot is always free, always large enough, and never shared.

    takes_parts: whether the model may read a prompt in several passes.
    """

    def __init__(self, *, takes_parts: bool) -> None:
        self._takes_parts = takes_parts

    def check_fits(self, sequence: Sequence) -> None:
        """Accept every sequence: a slot grows with it."""

    def adopt(self, sequence: Sequence) -> None:
        """Find nothing known."""

    def is_being_read(self, sequence: Sequence, others: Iterable[Sequence]) -> bool:
        """Tell that nothing is worth waiting for."""
        return False

    def portion(self, sequence: Sequence, budget: int) -> int:
        """Give how many tokens the next pass reads where it may read so many; all that are left if it must."""
        return min(sequence.num_uncached, budget) if self._takes_parts else sequence.num_uncached

    def grow(self, sequence: Sequence, num_tokens: int, *, spare: int = 0) -> bool:
        """Have room."""
        return True

    def publish(self, sequence: Sequence) -> None:
        """Keep what is read to the sequence itself."""

    def fork(self, source: Sequence, sequence: Sequence) -> bool:
        """Have nothing to share."""
        return False

    def release(self, sequence: Sequence) -> None:
        """Free the slot of a sequence; what it has read, it must read again."""
        sequence.slot, sequence.num_cached = None, 0
