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


class Quick:
    """Does what the library's function does, and leaves to it whatever `turned` is not made for.

    That is all outside inference mode too: another thread may train a network that looks the function up here.
    """

    def __init__(self, apply: Turning) -> None:
        self.apply = apply

    def __call__(self, *given: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Give the query and the key turned, each in its own shape; given: query, key, cos, sin."""
        is_known = len(given) == 4 and not named and torch.is_inference_mode_enabled()
        if not is_known or given[0].dim() != 4 or given[0].dtype != torch.float32:
            return self.apply(*given, **named)
        query, key, cos, sin = given
        if query.shape[-1] != cos.shape[-1]:
            return self.apply(*given)
        return turned(query, cos, sin), turned(key, cos, sin)


def rotary_rooms(network: Any) -> list[tuple[Any, Quick]]:
    """Give the Python modules in which a network finds a function that a quicker one can replace, and the latter."""
    if (
        getattr(network, "dtype", None) != torch.float32
        or getattr(getattr(network, "device", None), "type", "") != "cpu"
    ):
        return []
    found = []
    for name in sorted({type(part).__module__ for part in network.modules()}):
        room = sys.modules.get(name)
        apply: Any = getattr(room, NAME, None)
        if isinstance(apply, Quick):  # another thread's pass is under way
            apply = apply.apply
        if is_replaceable(apply):
            found.append((room, Quick(apply)))
    return found


@torch.inference_mode()
def is_replaceable(apply: Any) -> bool:
    """Tell whether a function of queries, keys, cosines and sines gives what `turned` does."""
    numbers = torch.linspace(-3, 3, 96).sin()
    query, key = numbers[:48].view(1, 2, 3, 8), numbers[48:72].view(1, 1, 3, 8)
    cos, sin = numbers[72:].view(1, 3, 8), numbers[:24].view(1, 3, 8)
    try:
        pairs = zip(apply(query, key, cos, sin), Quick(apply)(query, key, cos, sin), strict=True)
        return all(torch.allclose(one, other, atol=1e-6) for one, other in pairs)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False


@contextmanager
def quick_rotary(rooms: Sequence[tuple[Any, Quick]]) -> Iterator[None]:
    """Let networks find the quicker functions in these modules; afterwards they find the library's own again.

    That is so whichever of several threads is the last to leave; one that is still under way has the library's for the
    rest of its pass.
    """
    try:
        for room, quick in rooms:
            setattr(room, NAME, quick)
        yield
    finally:
        for room, quick in rooms:
            setattr(room, NAME, quick.apply)
