"""Drawing for many sequences in one step: one transfer from the device, then each row by itself."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from .errors import ParameterError
from .sampler import Sampler
from .trace import Draw


def row_draws(samplers: Sequence[Sampler], logits: Tensor) -> list[Callable[[], Draw]]:
    """Give for each row of `logits`, `(rows, vocab)` on any device, what draws its sampler's next token.

    Each may fail by itself, as Sampler.draw does, and the others go on. Nothing is computed across rows, so a draw is
    the same to the last bit in any company: one row after the other stays near the processor, and that is quicker there
    than all of them at once. Raises ParameterError where rows and samplers do not match.
    """
    if logits.dim() != 2 or len(logits) != len(samplers):
        raise ParameterError(
            "logits", tuple(logits.shape), f"(rows, vocab) with a row for each of {len(samplers)} samplers"
        )
    rows = logits.detach().to("cpu", torch.float32).contiguous()
    return [partial(sampler.draw, row) for sampler, row in zip(samplers, rows, strict=True)]
