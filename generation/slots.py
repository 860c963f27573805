"""A place of its own in the KV cache for each sequence: for models whose past cannot be cut into blocks."""

from collections.abc import Iterable

from .sequence import Sequence


class Slots:
    """Answers the scheduler as BlockTables does: a slot is always free, always large enough, and never shared."""

    def check_fits(self, sequence: Sequence) -> None:
        """Accept every sequence: a slot grows with it."""

    def adopt(self, sequence: Sequence) -> None:
        """Find nothing known."""

    def is_being_read(self, sequence: Sequence, others: Iterable[Sequence]) -> bool:
        """Tell that nothing is worth waiting for."""
        return False

    def portion(self, sequence: Sequence, budget: int) -> int:
        """Give how many tokens the next pass reads: all that are left, since not every model takes them in parts."""
        return sequence.num_uncached

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
