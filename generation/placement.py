"""Where the keys and values of an engine's sequences stand: in blocks that they share, or each in a slot of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .block_tables import BlockTables
from .blocks import BlockPool
from .compiled_runner import CompiledRunner
from .errors import RunError
from .graphs import Capture, capture_on
from .kv_memory import num_blocks
from .model import Model
from .package import Package
from .package_key import BLOCK_SIZE
from .pools import Pools, bytes_per_block
from .slots import Slots
from .transfers import DrawTransfer, RowTransfer, Transfer

if TYPE_CHECKING:
    from .block_runner import BlockRunner
    from .graph_runner import GraphRunner
    from .runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A runner with the memory that it works on, and what brings its results to the host."""

    runner: BlockRunner | CompiledRunner | GraphRunner | Runner
    memory: BlockTables | Slots
    transfer: Transfer
    max_running: int
    one_at_a_time: str | None = None  # why only one sequence runs, where more were wanted


def placed(model: Model, *, max_running: int, kv_memory: int | None, block_size: int) -> Placement:
    """Give blocks where several sequences are to run together and the model can do so; else a slot for one.

    A compiled step, and graphs of a GPU, have their own way over blocks. kv_memory: bytes; None: what suits the device.
    """
    if model.package is not None and block_size == BLOCK_SIZE:
        return _compiled(model, model.package, max_running, kv_memory)
    capture = capture_on(model.device) if model.has_graphs else None
    if max_running == 1 and kv_memory is None and capture is None:
        return _in_slots(model, capture)
    return _in_blocks(model, max_running, kv_memory, block_size, capture)


def _in_blocks(
    model: Model, max_running: int, kv_memory: int | None, block_size: int, capture: Capture | None
) -> Placement:
    from .block_runner import BlockRunner
    from .block_trial import tried_cache

    try:
        tried = tried_cache(model.network)
    except RunError as error:
        is_missed = max_running > 1 or kv_memory is not None
        reason = f"{model.name} runs one request at a time: {error}."
        return _in_slots(model, capture, reason if is_missed else None)
    block_bytes = tried.block_bytes // tried.block_size * block_size
    count = _num_blocks(model, max_running, kv_memory, block_bytes, block_size)
    cache = tried.enlarged(count, block_size)
    tables = BlockTables(BlockPool(count, block_size), clear=cache.clear, copy=cache.copy)
    runner, transfer = BlockRunner(model.network, cache), _transfer(model, capture)
    if capture is None:
        return Placement(runner=runner, memory=tables, transfer=transfer, max_running=max_running)
    from .graph_runner import GraphRunner

    graph_runner = GraphRunner(runner, capture)
    return Placement(runner=graph_runner, memory=tables, transfer=transfer, max_running=max_running)


def _compiled(model: Model, package: Package, max_running: int, kv_memory: int | None) -> Placement:
    shapes, dtype = package.facts.pools, torch.float32
    block_bytes = bytes_per_block(shapes, BLOCK_SIZE, item_size=dtype.itemsize)
    count = max(2, _num_blocks(model, max_running, kv_memory, block_bytes, BLOCK_SIZE))
    pools = Pools(shapes, count, BLOCK_SIZE, dtype=dtype, device=model.device)
    tables = BlockTables(BlockPool(count, BLOCK_SIZE), clear=pools.clear, copy=pools.copy)
    runner = CompiledRunner(model.network, package, pools)
    return Placement(runner=runner, memory=tables, transfer=RowTransfer(), max_running=max_running)


def _in_slots(model: Model, capture: Capture | None, reason: str | None = None) -> Placement:
    from .runner import Runner

    runner = Runner(model.network)
    memory = Slots(takes_parts=runner.takes_parts(runner.new_slot(None)))
    transfer = _transfer(model, capture)
    return Placement(runner=runner, memory=memory, transfer=transfer, max_running=1, one_at_a_time=reason)


def _transfer(model: Model, capture: Capture | None) -> Transfer:
    """Give what brings results from the device of a model: a GPU makes the draws itself."""
    return DrawTransfer(capture) if capture is not None or model.device.startswith("cuda") else RowTransfer()


def _num_blocks(model: Model, max_running: int, kv_memory: int | None, block_bytes: int, block_size: int) -> int:
    return num_blocks(
        kv_memory,
        block_bytes=block_bytes,
        block_size=block_size,
        window=model.window,
        max_running=max_running,
        device=model.device,
    )
