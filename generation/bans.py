"""Filters that rule tokens out, whatever the model thinks of them: for good, after certain tokens, or for a while.

As in filters.py, logits are `(…, vocab)` in float32, a dropped token has −inf, and a neutral value returns the input.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .errors import ParameterError


def apply_allowed_token_ids(logits: Tensor, allowed_ids: Sequence[int] | None) -> Tensor:
    """Keep only these tokens; none named keeps all."""
    if not allowed_ids:
        return logits
    vocab = logits.shape[-1]
    wrong = next((token_id for token_id in allowed_ids if not 0 <= token_id < vocab), None)
    if wrong is not None:
        raise ParameterError("allowed_token_ids", wrong, f"token ids from 0 to {vocab - 1}")
    ids = torch.tensor(allowed_ids, device=logits.device)
    is_dropped = torch.ones(vocab, dtype=torch.bool, device=logits.device).index_fill(0, ids, False)
    return logits.masked_fill(is_dropped, -torch.inf)


def apply_bad_words(logits: Tensor, output_ids: Sequence[int], bad_word_ids: Sequence[Sequence[int]] | None) -> Tensor:
    """Drop the last token of every word whose other tokens the output ends with.

    Source: vLLM, whose words are matched in the output alone.
    """
    ends = []
    for *start, last in bad_word_ids or ():
        tail = output_ids[len(output_ids) - len(start) :] if len(start) <= len(output_ids) else None
        if tail is not None and list(tail) == start:
            ends.append(last)
    return _dropped(logits, ends)


def apply_min_new_tokens(logits: Tensor, num_new: int, minimum: int | None, end_token_ids: Sequence[int]) -> Tensor:
    """Drop the end tokens while fewer than `minimum` tokens are written; `num_new` are."""
    return _dropped(logits, end_token_ids) if num_new < (minimum or 0) else logits


def _dropped(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Drop tokens; an id past the vocabulary can never be drawn."""
    ids = [token_id for token_id in ids if token_id < logits.shape[-1]]
    return logits.index_fill(-1, torch.tensor(ids, device=logits.device), -torch.inf) if ids else logits
