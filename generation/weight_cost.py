"""What a model loses with other weights than its own: its perplexity on a text that every Python brings along."""

import math
from typing import Any

import torch
from torch.nn import functional

from .errors import RunError

WINDOWS, WINDOW = 16, 512  # tokens


def reference_ids(tokenizer: Any, window: int | None) -> list[list[int]]:
    """Give the ids of some passages of the Python language reference, spread over it, each of the same length."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise RunError("measuring what its weights cost takes Python's own help texts, and they are not here") from None
    length = min(WINDOW, window or WINDOW)
    text = "".join(topics[name] for name in sorted(topics))
    stride = len(text) // WINDOWS  # characters, far more than a window has
    found = [tokenizer.encode(text[start : start + stride // 4]) for start in range(0, stride * WINDOWS, stride)]
    return [ids[:length] for ids in found if len(ids) >= length]


@torch.inference_mode()
def perplexity(network: Any, passages: list[list[int]]) -> float:
    """Give exp of the mean negative log-probability of each token but the first of its passage."""
    total, count = 0.0, 0
    for ids in passages:
        row = torch.tensor(ids)
        logits = network(input_ids=row[None], use_cache=False).logits[0, :-1]
        total += float(functional.cross_entropy(logits.float(), row[1:], reduction="sum"))
        count += len(ids) - 1
    return math.exp(total / count)
