"""KV slots behind the transformers Cache interface: one slot holds the keys and values of one sequence."""

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

FIRST_ROOM = 256  # tokens; a slot starts with room for the prompt and this many, then grows by half
CACHE_NAMES = ("cache", "past_key_values")
ATTENTION = (DynamicLayer, DynamicSlidingWindowLayer)


def new_slot(config: Any, limit: int | None) -> Cache:
    """Give an empty slot for a model with `config`, which never holds more than `limit` tokens (None: no limit).

    Attention layers of any kind keep all their keys here: a sliding window is the mask's business. A layer of another
    kind (linear attention, state space) keeps the library's own cache.
    """
    if not hasattr(config, "get_text_config"):  # not a transformers model: it keeps its own past, if any
        return Cache(layers=[])
    layers: list[Any] = [
        SlotLayer(limit, is_sliding=type(layer) is DynamicSlidingWindowLayer) if type(layer) in ATTENTION else layer
        for layer in DynamicCache(config=config).layers
    ]
    return Cache(layers=layers)


def takes_parts(slot: Cache) -> bool:
    """Tell whether a prompt may come in several passes: a layer with a state of its own may forget the first ones."""
    return all(isinstance(layer, SlotLayer) for layer in slot.layers)


def rewind(slot: Cache, length: int) -> None:
    """Let a slot that takes parts forget all but its first `length` tokens."""
    for layer in slot.layers:
        assert isinstance(layer, SlotLayer)
        layer.length = length


def is_used_by(network: Any) -> bool:
    """Tell whether a network keeps its past in a slot. Some of the library's models have another cache, or none."""
    names = inspect.signature(getattr(network, "forward", network)).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values())
    supports = getattr(network, "_supports_default_dynamic_cache", None)  # only the library's models say so
    if supports is None:
        return takes_any or not names.keys().isdisjoint(CACHE_NAMES)
    return bool(supports()) and not names.keys().isdisjoint(CACHE_NAMES)


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # the library's class hook has no types
    """Keys and values of one layer, `(1, kv_heads, room, head_dim)` each, the first `length` of them filled.

    New keys are written in place: a step costs one row, not a copy of the whole past.
    """

    is_sliding = False

    def __init__(self, limit: int | None, is_sliding: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.limit, self.is_sliding, self.length = limit, is_sliding, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Start with no room at all."""
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append new keys and values, `(1, kv_heads, new, head_dim)`; give all so far."""
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        start, self.length = self.length, self.length + key_states.shape[2]
        if self.length > self.keys.shape[2]:
            room = max(self.length + FIRST_ROOM, self.length * 3 // 2)
            room = room if self.limit is None else max(self.length, min(room, self.limit))
            self.keys, self.values = _moved(self.keys, start, room), _moved(self.values, start, room)
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Give how many keys the next pass sees, and the position of the first."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Give how many tokens are held: the position of the next one."""
        return self.length

    def get_max_length(self) -> int:
        """Give the most tokens it may hold; −1 where there is no limit."""
        return -1 if self.limit is None else self.limit


def _moved(past: Tensor, length: int, room: int) -> Tensor:
    grown = torch.empty((*past.shape[:2], room, past.shape[3]), dtype=past.dtype, device=past.device)
    grown[:, :, :length] = past[:, :, :length]
    return grown
