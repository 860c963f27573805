"""Where the keys and values of an engine's sequences stand: in blocks that they share, or each in a slot of its own."""

from dataclasses import dataclass

from .block_runner import BlockRunner
from .block_tables import BlockTables
from .block_trial import tried_cache
from .blocks import BlockPool
from .errors import RunError
from .kv_memory import num_blocks
from .model import Model
from .runner import Runner
from .slots import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A runner with the memory that it works on."""

    runner: BlockRunner | Runner
    memory: BlockTables | Slots
    max_running: int
    one_at_a_time: str | None = None  # why only one sequence runs, where more were wanted


def placed(model: Model, *, max_running: int, kv_memory: int | None, block_size: int) -> Placement:
    """Give blocks where several sequences are to run together and the model can do so; else a slot for one.

    kv_memory: bytes; None: what suits the device.
    """
    if max_running == 1 and kv_memory is None:
        return _in_slots(model)
    try:
        tried = tried_cache(model.network)
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
    return Placement(runner=BlockRunner(model.network, cache), memory=tables, max_running=max_running)


def _in_slots(model: Model, reason: str | None = None) -> Placement:
    runner = Runner(model.network)
    memory = Slots(takes_parts=runner.takes_parts(runner.new_slot(None)))
    return Placement(runner=runner, memory=memory, max_running=1, one_at_a_time=reason)
