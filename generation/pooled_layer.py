"""What the layers of a cache in pools tell the transformers library: nothing of the past, which tables know."""

from transformers.cache_utils import CacheLayerMixin


class PooledLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # the library's class hook has no types
    """A layer whose keys and values stand in pools, for many sequences."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Give no past: what is read, and what is hidden of it, comes with the pass."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Give 0: positions come with the pass."""
        return 0

    def get_max_length(self) -> int:
        """Give −1: there is no limit to one sequence but the pool's."""
        return -1
