"""How many blocks a KV cache gets."""

import pytest
from minigen.generation import kv_memory as module
from minigen.generation.errors import ParameterError
from minigen.generation.kv_memory import num_blocks

MIB = 2**20


@pytest.mark.parametrize(
    ("device", "free", "window", "max_running", "expected"),
    [
        ("cpu", None, 640, 4, 40),  # what four windows of 10 blocks come to
        ("cpu", None, None, 4, 1024),  # 1 GiB of blocks of 1 MiB
        ("cpu", None, 64 * 2000, 4, 2000),  # one window, where that is more
        ("cpu", 100 * MIB, 64 * 300, 4, 50),  # half of what is free
        ("cpu", 0, 640, 4, 1),
        ("cuda:0", 1000 * MIB, None, 64, 800),
        ("cuda:0", None, 640, 64, 640),
        ("cuda:0", None, None, 64, 2**20),
    ],
)
def test_what_suits_the_device(
    device: str, free: int | None, window: int | None, max_running: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_memory", lambda device: free)
    shape = {"block_bytes": MIB, "block_size": 64, "window": window, "max_running": max_running}
    assert num_blocks(None, **shape, device=device) == expected


def test_a_given_memory_is_kept_to() -> None:
    shape = {"block_bytes": MIB, "block_size": 64, "window": 640, "max_running": 4}
    assert num_blocks(5 * MIB + 7, **shape, device="cpu") == 5
    with pytest.raises(ParameterError, match="at least 1 MB, the size of one block"):
        num_blocks(MIB - 1, **shape, device="cpu")
