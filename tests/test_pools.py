"""The pools: what is forgotten is what was asked for, and no more."""

import torch
from hypothesis import given, strategies as st
from minigen.generation.pools import Pools


@given(st.lists(st.integers(1, 9), unique=True))
def test_blocks_are_cleared_in_any_order_and_no_others(blocks: list[int]) -> None:
    pools = Pools([(2, 4), (1, 3)], num_blocks=9, block_size=2, dtype=torch.float32, device="cpu")
    for pool in pools.tensors:
        pool.fill_(torch.nan)
    pools.clear(blocks)
    for pool in pools.tensors:
        assert {place for place in range(10) if not pool[place].isnan().any()} == set(blocks)
        assert not pool[blocks].any()
