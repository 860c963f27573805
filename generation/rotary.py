"""Rotary positions on a CPU: queries and keys are turned in three calls each, where the transformers library makes six.

Its attention looks the function up where it is defined. There another takes its place for the time of a pass, if both
give the same.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

NAME = "apply_rotary_pos_emb"

Turning = Callable[..., tuple[Tensor, Tensor]]


def turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of numbers that are half a head apart: x cos − y sin, y cos + x sin (RoFormer, arXiv 2104.09864).

    states: `(1, heads, tokens, dim)`, in any order of memory; gives the same shape, head by head. cos, sin:
    `(1, tokens, dim)`.
    """
    half = states.shape[-1] // 2
    out = torch.mul(states, cos[:, None], out=states.new_empty(states.shape))
    out[..., :half].addcmul_(states[..., half:], sin[:, None, :, :half], value=-1)
    out[..., half:].addcmul_(states[..., :half], sin[:, None, :, half:])
    return out


def rotary_rooms(network: Any) -> list[Any]:
    """Give the Python modules in which a network finds a function that `turned` can take the place of."""
    if (
        getattr(network, "dtype", None) != torch.float32
        or getattr(getattr(network, "device", None), "type", "") != "cpu"
    ):
        return []
    names = {type(part).__module__ for part in network.modules()}
    return [room for name in sorted(names) if _is_replaceable(getattr(room := sys.modules.get(name), NAME, None))]


def _is_replaceable(apply: Any) -> bool:
    """Tell whether a function of queries, keys, cosines and sines gives what `turned` does."""
    numbers = torch.linspace(-3, 3, 96).sin()
    query, key = numbers[:48].view(1, 2, 3, 8), numbers[48:72].view(1, 1, 3, 8)
    cos, sin = numbers[72:].view(1, 3, 8), numbers[:24].view(1, 3, 8)
    try:
        given = apply(query, key, cos, sin)
        wanted = _quick(apply)(query, key, cos, sin)
        return all(torch.allclose(one, other, atol=1e-6) for one, other in zip(given, wanted, strict=True))
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False


def _quick(apply: Turning) -> Turning:
    """Give a function that does what `apply` does, and leaves to it what it is not made for."""

    def quick(
        query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *others: Any, **named: Any
    ) -> tuple[Tensor, Tensor]:
        is_known = not others and not named and query.dim() == 4 and query.shape[-1] == cos.shape[-1]
        if not is_known or query.dtype != torch.float32:
            return apply(query, key, cos, sin, *others, **named)
        return turned(query, cos, sin), turned(key, cos, sin)

    return quick


@contextmanager
def quick_rotary(rooms: Sequence[Any]) -> Iterator[None]:
    """Let networks find the quicker function in these modules; afterwards they find their own again."""
    before = [getattr(room, NAME) for room in rooms]
    for room, apply in zip(rooms, before, strict=True):
        setattr(room, NAME, _quick(apply))
    try:
        yield
    finally:
        for room, apply in zip(rooms, before, strict=True):
            setattr(room, NAME, apply)
