"""How many blocks a KV cache has: what is asked for, or what suits the device."""

from .device import free_memory
from .errors import ParameterError
from .progress import bytes_text

GIB = 2**30
SHARE_OF_GPU = 0.8  # of what is free once the model is there
SHARE_OF_MAIN = 0.5


def num_blocks(
    kv_memory: int | None, *, block_bytes: int, block_size: int, window: int | None, max_running: int, device: str
) -> int:
    """Give the number of blocks for `kv_memory` bytes.

    kv_memory, block_bytes: in bytes; block_size, window: in tokens. None: what `max_running` sequences could fill, but
    on a GPU at most a share of its free memory; elsewhere at most 1 GiB, or one whole window where that is more, and at
    most half of what is free. Raises ParameterError where not even one block fits into kv_memory.
    """
    if kv_memory is not None:
        if kv_memory < block_bytes:
            raise ParameterError("kv_memory", kv_memory, f"at least {bytes_text(block_bytes)}, the size of one block")
        return kv_memory // block_bytes
    per_window = None if window is None else -(-window // block_size)
    free = free_memory(device)
    if device.startswith("cuda"):
        most = None if free is None else int(free * SHARE_OF_GPU) // block_bytes
    else:
        most = max(GIB // block_bytes, per_window or 0)
        most = most if free is None else min(most, int(free * SHARE_OF_MAIN) // block_bytes)
    useful = None if per_window is None else per_window * max_running
    return max(1, min(each for each in (most, useful, 2**20) if each is not None))
