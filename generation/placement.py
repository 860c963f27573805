"""Where the keys and values of an engine's sequences stand: in blocks that they share, or each in a slot of its own."""

from dataclasses import dataclass
from typing import Any

import torch

from .block_cache import BlockCache
from .block_runner import BlockRunner
from .block_tables import BlockTables
from .block_trial import tried_cache
from .blocks import BlockPool
from .compiled_runner import CompiledRunner
from .errors import RunError
from .kv_memory import num_blocks
from .model import Model
from .package_key import BLOCK_SIZE
from .packages import Package
from .runner import Runner
from .slots import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A runner with the memory that it works on."""

    runner: BlockRunner | CompiledRunner | Runner
    memory: BlockTables | Slots
    max_running: int
    one_at_a_time: str | None = None  # why only one sequence runs, where more were wanted


def placed(model: Model, *, max_running: int, kv_memory: int | None, block_size: int) -> Placement:
    """Give blocks where several sequences are to run together and the model can do so; else a slot for one.

    kv_memory: bytes; None: what suits the device.
    """
    package = model.package if block_size == BLOCK_SIZE else None
    if max_running == 1 and kv_memory is None and package is None:
        return _in_slots(model)
    try:
        tried = tried_cache(model.network) if package is None else _cache_for(model.network, package)
    except RunError as error:
        reason = f"{model.name} runs one request at a time: {error}."
        return _in_slots(model, reason)
    count = num_blocks(
        kv_memory,
        block_bytes=tried.block_bytes // tried.block_size * block_size,
        block_size=block_size,
        window=model.window,
        max_running=max_running,
        device=model.device,
    )
    cache = tried.enlarged(count, block_size)
    tables = BlockTables(BlockPool(count, block_size), clear=cache.clear, copy=cache.copy)
    runner = BlockRunner(model.network, cache)
    compiled = None if package is None else CompiledRunner(runner, package)
    return Placement(runner=compiled or runner, memory=tables, max_running=max_running)


def _cache_for(network: Any, package: Package) -> BlockCache:
    """Give a small cache of the shapes that a compiled step knows, so that nothing need be tried."""
    cache = BlockCache(network.config, 1, BLOCK_SIZE)
    cache.allocate(package.facts.pools, torch.float32)
    return cache


def _in_slots(model: Model, reason: str | None = None) -> Placement:
    runner = Runner(model.network)
    memory = Slots(takes_parts=runner.takes_parts(runner.new_slot(None)))
    return Placement(runner=runner, memory=memory, max_running=1, one_at_a_time=reason)
