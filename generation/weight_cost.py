"""What a model loses with other weights than its own: its perplexity on a text that every Python brings along."""

import math
from typing import Any

import torch
from torch.nn import functional

from .errors import RunError

NUM_PASSAGES = 16
LONGEST = 512  # tokens of a passage
MOST = 700.0  # nats a token; e to a higher power is no number


def reference_ids(tokenizer: Any, window: int | None, vocab_size: int) -> list[list[int]]:
    """Give the ids of some passages of the Python language reference, spread over it, each of the same length.

    Other versions of Python have other texts, so only what was measured with one of them can be compared.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise RunError("measuring what its weights cost takes Python's own help texts, and they are not here") from None
    length = min(LONGEST, window or LONGEST)
    text = "".join(topics[name] for name in sorted(topics))
    stride = len(text) // NUM_PASSAGES  # characters, far more than a window has
    found = [tokenizer.encode(text[start : start + stride // 4]) for start in range(0, stride * NUM_PASSAGES, stride)]
    known = [[token_id for token_id in ids if token_id < vocab_size] for ids in found]  # a tokenizer may know more
    return [ids[:length] for ids in known if len(ids) >= length]


@torch.inference_mode()
def perplexity(network: Any, passages: list[list[int]]) -> float:
    """Give exp of the mean negative log-probability of each token but the first of its passage.

    Raises RunError where that is no number.
    """
    total, count = 0.0, 0
    for ids in passages:
        row = torch.tensor(ids)
        logits = network(input_ids=row[None], use_cache=False).logits[0, :-1]
        total += float(functional.cross_entropy(logits.float(), row[1:], reduction="sum"))
        count += len(ids) - 1
    if not count or not total / count < MOST:
        raise RunError("its perplexity cannot be measured")
    return math.exp(total / count)
