"""Attention in tiles, held against PyTorch's own."""

import pytest
import torch
from minigen.generation import tiles
from minigen.generation.tiles import MOST_KEYS, TILE, attend_in_tiles, can_tile
from torch import Tensor
from torch.nn import functional

SHAPES = [(9, 3, 64, 64), (4, 4, 32, 32), (8, 1, 16, 24)]  # heads, key heads, dim of keys, dim of values


def states(heads: int, tokens: int, dim: int) -> Tensor:
    """Give them as a network does: token by token, seen head by head."""
    return torch.randn(tokens, heads, dim).transpose(0, 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("context", [0, 1, 64, TILE])
@pytest.mark.parametrize("tokens", [1, 2, TILE - 1, TILE, TILE + 1, 3 * TILE])
def test_tiles_give_what_pytorch_gives(tokens: int, context: int, shape: tuple[int, int, int, int]) -> None:
    torch.manual_seed(tokens + context)
    heads, key_heads, dim, wide = shape
    query, key = states(heads, tokens, dim), states(key_heads, context + tokens, dim)
    value = states(key_heads, context + tokens, wide)
    seen = torch.ones(tokens, context + tokens, dtype=torch.bool).tril(context)
    expected = functional.scaled_dot_product_attention(
        query[None], key[None], value[None], attn_mask=seen, scale=0.3, enable_gqa=True
    )[0].transpose(0, 1)
    torch.testing.assert_close(attend_in_tiles(query, key, value, 0.3), expected, rtol=1e-5, atol=1e-5)


def test_only_float32_on_a_cpu_is_attended_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    can_tile.cache_clear()
    assert not can_tile("cpu", torch.bfloat16)
    assert not can_tile("cuda", torch.float32)
    monkeypatch.setattr(tiles, "_product", lambda one, other: one @ other.t() + 1)  # a library that is wrong
    can_tile.cache_clear()
    assert not can_tile("cpu", torch.float32)
    can_tile.cache_clear()


def test_the_library_meets_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    met, product = set(), tiles._product

    def noted(one: Tensor, other: Tensor) -> Tensor:
        assert one.is_contiguous()
        assert other.is_contiguous() or other.t().is_contiguous(), "rows that lie apart are read a hundred times slower"
        met.add((one.shape, other.shape))
        return product(one, other)

    monkeypatch.setattr(tiles, "_product", noted)
    for context in (0, 7, TILE, 200):
        for tokens in range(1, MOST_KEYS - context, 37):
            attend_in_tiles(*[states(heads, (heads < 2) * context + tokens, 8) for heads in (2, 1, 1)], scale=1.0)
    assert 1 < len(met) <= 2 * MOST_KEYS // TILE
