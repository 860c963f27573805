"""The JSON of `minigen diff`; `text_schemas.py` says what stands in it. A number that is not finite is null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..generation.comparing import Comparison, gains, losses, total
from ..generation.model import Model
from ..generation.pieces import Piece

if TYPE_CHECKING:
    from .diff_plan import DiffPlan

SCHEMA = 1


def diff_document(
    plan: DiffPlan, model: Model, num_before: tuple[int, int], found: Sequence[Comparison], pieces: Sequence[Piece]
) -> dict[str, Any]:
    """Give the document. num_before: how many tokens prompt A and prompt B have."""
    tokens = [
        {
            "id": one.a.token_id,
            "text": piece.text,
            "logprob_a": one.a.logprob,
            "logprob_b": one.b.logprob,
            "delta": one.change,
            "kl": one.kl,
        }
        for one, piece in zip(found, pieces, strict=True)
    ]
    sums = total(found)
    is_any = sums.num_compared > 0
    return {
        "schema": SCHEMA,
        "model": model.name,
        "device": model.device,
        "dtype": model.dtype,
        "mode": "chat" if plan.is_chat else "raw",
        "system": plan.system,
        "a": plan.a,
        "b": plan.b,
        "text": plan.text,
        "tokens": tokens,
        "logprob_a": sums.logprob_a if is_any else None,
        "logprob_b": sums.logprob_b if is_any else None,
        "delta": sums.change if is_any else None,
        "kl": sums.kl,
        "gains": [{"index": place, **tokens[place]} for place in gains(found, plan.top)],
        "losses": [{"index": place, **tokens[place]} for place in losses(found, plan.top)],
        "usage": {
            "a_tokens": num_before[0],
            "b_tokens": num_before[1],
            "text_tokens": len(found),
            "compared_tokens": sums.num_compared,
        },
    }
