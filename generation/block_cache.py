"""The KV cache in blocks, behind the transformers Cache interface, and the pass that reads and writes it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from .attention import Pass, Workspace, attend
from .blocks import NULL
from .errors import RunError
from .plan import Plan
from .pooled_layer import PooledLayer
from .pools import Pools, clear_blocks, pool_shapes

NAME = "minigen_blocks"
AttentionInterface.register(NAME, attend)


class BlockCache:
    """The keys and values of many sequences: for each layer a pool of blocks, of which the first is never given out.

    What shape they have shows in the first pass. Raises RunError where a layer of the model keeps anything but keys and
    values.
    """

    def __init__(self, config: Any, num_blocks: int, block_size: int) -> None:
        layers = DynamicCache(config=config).layers
        if "chunked_attention" in (getattr(config.get_text_config(), "layer_types", None) or ()):
            raise RunError("a layer of it attends within chunks")
        if other := next((type(layer) for layer in layers if type(layer) not in _ATTENTION), None):
            raise RunError(f"a layer of it keeps more than keys and values ({other.__name__})")
        self._config, self.num_blocks, self.block_size = config, num_blocks, block_size
        self.layers: list[Any] = [BlockLayer(self, getattr(layer, "sliding_window", None)) for layer in layers]
        self.plan: Plan | None = None  # of the pass that is under way
        self._workspace = Workspace()

    @property
    def block_bytes(self) -> int:
        """The bytes of one block in all layers; known after the first pass."""
        return sum(pool[0].numel() * pool.element_size() for layer in self.layers for pool in layer.pools())

    @classmethod
    def over(cls, pools: Pools, config: Any) -> "BlockCache":
        """Give the cache of a model over pools that are there already."""
        cache = cls(config, len(pools.tensors[0]) - 1, pools.block_size)
        for layer, (keys, values) in zip(cache.layers, pools.layers, strict=True):
            layer.keys, layer.values, layer.is_initialized = keys, values, True
        return cache

    def enlarged(self, num_blocks: int, block_size: int) -> "BlockCache":
        """Give an empty cache for the same model, whose shapes are known from a pass over this one."""
        cache = BlockCache(self._config, num_blocks, block_size)
        for layer, known in zip(cache.layers, self.layers, strict=True):
            layer.allocate(known.keys.transpose(-1, -2), known.values)
        return cache

    @contextmanager
    def passing(self, plan: Plan, workspace: Workspace | None = None) -> Iterator[dict[str, Any]]:
        """Give what a forward pass needs so that it follows a plan. workspace: None: the one that passes share."""
        self.plan = plan
        try:
            of_pass = Pass(plan, self.layers, workspace or self._workspace)
            yield {"cache": Cache(layers=self.layers), "of_pass": of_pass}
        finally:
            self.plan = None

    @torch.inference_mode()
    def clear(self, blocks: Sequence[int]) -> None:
        """Forget what stands in blocks."""
        clear_blocks([pool for layer in self.layers for pool in layer.pools()], blocks)

    @torch.inference_mode()
    def copy(self, source: int, target: int) -> None:
        """Write the content of one block into another."""
        for layer in self.layers:
            for pool in layer.pools():
                pool[target] = pool[source]


class BlockLayer(PooledLayer):
    """Keys `(blocks, key heads, dim, block_size)` and values `(blocks, key heads, block_size, dim)` of one layer."""

    is_sliding = False

    def __init__(self, owner: BlockCache, window: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner, self.window = owner, window

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the pools, and clear them."""
        self.allocate(key_states, value_states)
        for pool in self.pools():
            pool.zero_()

    def allocate(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the pools for states `(…, key heads, …, dim)`.

        What is never written is never used, where the system gives memory that way: blocks are cleared when taken.
        """
        shapes = [(states.shape[1], states.shape[3]) for states in (key_states, value_states)]
        self.keys, self.values = (
            torch.empty((self.owner.num_blocks + 1, *shape), dtype=key_states.dtype, device=key_states.device)
            for shape in pool_shapes(shapes, self.owner.block_size)
        )
        self.is_initialized = True
        for pool in self.pools():
            pool[NULL].zero_()

    def pools(self) -> Sequence[Tensor]:
        """Give its keys and its values; nothing before the first pass."""
        return (self.keys, self.values) if self.keys is not None and self.values is not None else ()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the keys and values of a pass, `(1, key heads, tokens, dim)`, and give them back."""
        if self.keys is None:
            self.lazy_initialization(key_states, value_states)
        plan = self.owner.plan
        assert plan is not None
        assert self.keys is not None
        assert self.values is not None
        parts, offsets = plan.written(key_states.shape[1])
        key_states, value_states = key_states.contiguous(), value_states.contiguous()  # head by head, once
        for pool, states in ((self.keys.transpose(-1, -2), key_states), (self.values, value_states)):
            pool.flatten(0, 1).index_put_((parts, offsets), states.flatten(0, 2))
        return key_states, value_states


_ATTENTION = (DynamicLayer, DynamicSlidingWindowLayer)


def configs_of(network: Any) -> list[Any]:
    """Give the configurations that the parts of a network look into, each once."""
    return list({id(each.config): each.config for each in network.modules() if hasattr(each, "config")}.values())


@contextmanager
def block_attention(configs: Sequence[Any]) -> Iterator[None]:
    """Let a network with these configurations attend over blocks; afterwards it attends as before."""
    before = [config._attn_implementation_internal for config in configs]
    try:
        for config in configs:
            config._attn_implementation_internal = NAME
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation_internal = name
