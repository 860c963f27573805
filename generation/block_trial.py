"""Whether a model can run over blocks: found out by trying, since no declaration says it all."""

import inspect
from typing import Any

import torch
from torch import Tensor

from .block_cache import BlockCache
from .block_runner import BlockRunner
from .cache import is_used_by
from .errors import MinigenError, RunError
from .facts import rotary_switch_of
from .plan import Reading
from .runner import Runner

SIZE, TOKENS = 2, 5  # of a block, and of the longer sequence in the trial
MOST_APART = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the largest logit, or of 1; rounding stays far below
MOST_APART_HALF = 0.1
FAILURES = (  # of a model that is not made for it
    AssertionError,
    AttributeError,
    LookupError,
    MinigenError,
    RuntimeError,
    TypeError,
    ValueError,
)


def tried_cache(network: Any) -> BlockCache:
    """Run two short sequences over blocks, and each alone; give the small cache that they ran on.

    They are read in two passes: two chunks together, then a chunk with a past and a single token. Raises RunError with
    what is in the way, where the model cannot do it or its logits come out otherwise.
    """
    _check_kind(network)
    long, short = [list(range(1, TOKENS + 1)), list(range(TOKENS - 2, 0, -1))]
    try:
        cache = BlockCache(network.config, 2 * TOKENS, SIZE)
        runner = BlockRunner(network, cache)
        runner.read([Reading([4, 1, 3], 0, long[:3]), Reading([5, 2], 0, short[:2])], [])
        together = runner.read([Reading([4, 1, 3], 3, long[3:]), Reading([5, 2], 2, short[2:])], [0, 1])
        alone = _alone(network, long), _alone(network, short)
    except FAILURES as error:
        reason = str(error) if isinstance(error, MinigenError) else f"{type(error).__name__}: {error}"
        raise RunError(reason.splitlines()[0].rstrip(".")) from error
    for row, expected in zip(together.float(), alone, strict=True):
        apart = float((row - expected).abs().max() / expected.abs().max().clamp(min=1))
        if not apart <= MOST_APART.get(together.dtype, MOST_APART_HALF):
            raise RunError("it gives other logits when sequences run together")
    return cache


def _check_kind(network: Any) -> None:
    """Raise RunError for a model that need not even be tried."""
    if not hasattr(getattr(network, "config", None), "get_text_config"):
        raise RunError("it is not a model of the transformers library")
    if not is_used_by(network) or not getattr(network, "_supports_attention_backend", False):
        raise RunError("its attention or its cache is of another kind")
    if "logits_to_keep" not in inspect.signature(network.forward).parameters:
        raise RunError("it gives its logits for all tokens only")
    if rotary_switch_of(network.config) is not None:
        raise RunError("its rotary positions depend on the length of the text")
    if len({parameter.device for parameter in network.parameters()}) > 1:
        raise RunError("it is spread over several devices")


def _alone(network: Any, ids: list[int]) -> Tensor:
    runner = Runner(network)
    return runner.rows(ids, 0, runner.new_slot(len(ids)), 1)[0].float()
