"""Attention for many tokens of one sequence on a CPU: some queries at a time, which see no key in vain.

The products are made by the CPU's own matrix library, as in linear.py, at twice the speed of PyTorch's. The call is
private to PyTorch, so it is tried first.
"""

from functools import cache

import torch
from torch import Tensor

TILE = 128  # queries
MOST_KEYS = 512  # the library keeps a plan of about 1 MB for every shape that it meets: so there are few of them


def attend_in_tiles(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Attend for a chunk whose tokens see all before them, and themselves; gives `(tokens, heads, dim)`.

    query: `(heads, tokens, dim)`; key, value: `(key heads, keys, dim)`, the last keys those of the tokens.
    """
    heads, tokens, dim = query.shape
    key_heads, num_keys = key.shape[:2]
    each = heads // key_heads  # the query heads that look at a key head, together
    key, value = key.contiguous(), value.contiguous()  # head by head: the library is slow at rows that lie apart
    grouped = query.view(key_heads, each, tokens, dim)
    out = query.new_empty(tokens, heads, value.shape[2])
    later = query.new_full((TILE, TILE), -torch.inf).triu(1)
    for first in range(0, tokens, TILE):
        last = min(first + TILE, tokens)
        size, seen = last - first, num_keys - tokens + last
        product = _product if size == TILE and seen % TILE == 0 else _plain_product
        tile = torch.mul(grouped[:, :, first:last], scale, out=query.new_empty(key_heads, each, size, dim))
        for head in range(key_heads):
            scores = product(tile[head].flatten(0, 1), key[head, :seen])
            scores.view(each, size, seen)[..., seen - size :] += later[:size, :size]
            weights = torch.softmax(scores, -1, out=scores)
            seen_values = product(weights, value[head, :seen].t()).view(each, size, -1)
            out[first:last, head * each : (head + 1) * each] = seen_values.transpose(0, 1)
    return out


def _product(one: Tensor, other: Tensor) -> Tensor:
    """Give one · otherᵀ."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(one, other, None, "none", [], "")
    return product


def _plain_product(one: Tensor, other: Tensor) -> Tensor:
    return one @ other.t()


@cache
def can_tile(device: str, dtype: torch.dtype) -> bool:
    """Tell whether this is a CPU whose library gives the right products."""
    if (device, dtype) != ("cpu", torch.float32):
        return False
    one, other = torch.linspace(-1, 1, 32).view(4, 8), torch.linspace(-2, 1, 24).view(8, 3).t()
    try:
        return torch.allclose(_product(one, other), _plain_product(one, other), rtol=1e-4, atol=1e-4)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
