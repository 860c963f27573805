"""The JSON of `minigen score`; `text_schemas.py` says what stands in it. A number that is not finite is null."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..generation.continuations import Continuation
from ..generation.model import Model
from ..generation.pieces import Lines, Piece
from ..generation.scoring import Reading, Score
from .score_plan import ScorePlan

SCHEMA = 1
TextOf = Callable[[int], str]  # a token's own text


def head(model: Model, plan: ScorePlan) -> dict[str, Any]:
    """Give what every document begins with."""
    return {
        "schema": SCHEMA,
        "model": model.name,
        "device": model.device,
        "dtype": model.dtype,
        "mode": "chat" if plan.is_chat else "raw",
        "system": plan.system,
    }


def text_document(
    plan: ScorePlan,
    model: Model,
    reading: Reading,
    scores: Sequence[Score],
    surprising: Sequence[int] | None,
    text_of: TextOf,
) -> dict[str, Any]:
    """Give the document of a text. surprising: places of tokens to list once more, None where none were asked for."""
    summary = reading.summary(scores)
    tokens = [token_record(one, piece.text, text_of) for one, piece in zip(scores, reading.pieces, strict=True)]
    document = head(model, plan) | {
        "text": plan.text,
        "context": plan.context,
        "tokens": tokens,
        "logprob": summary.logprob if summary.num_scored else None,
        "perplexity": summary.perplexity,
        "bits_per_byte": summary.bits_per_byte,
        "window": reading.window,
        "stride": reading.stride,
        "num_windows": len(reading.passes),
        "usage": usage(len(reading.passage.before), len(scores), summary.num_scored),
    }
    if surprising is not None:
        document["top_surprising"] = _surprising(plan.text, tokens, reading.pieces, surprising)
    return document


def _surprising(
    text: str, tokens: Sequence[dict[str, Any]], pieces: Sequence[Piece], places: Sequence[int]
) -> list[dict[str, Any]]:
    lines, found = Lines(text), []
    for place in places:
        line, column = lines.at(pieces[place].start)
        found.append({"index": place, "line": line, "column": column, **tokens[place]})
    return found


def continuation_document(
    plan: ScorePlan, model: Model, num_before: int, found: Sequence[Continuation], text_of: TextOf
) -> dict[str, Any]:
    """Give the document of ranked options, or of one continuation that was expected."""
    document = head(model, plan) | {"context": plan.text}
    if plan.options:
        document["options"] = [_option(one) for one in found]
    else:
        one = found[0]
        document |= {
            "expect": one.text,
            "prob": one.prob,
            "logprob": one.logprob,
            "min_prob": plan.min_prob,
            "passed": one.prob >= plan.min_prob,
            "tokens": [token_record(each, text_of(each.token_id), text_of) for each in one.scores],
        }
    num_tokens = sum(len(one.scores) for one in found)
    return document | {"usage": usage(num_before, num_tokens, num_tokens)}


def _option(one: Continuation) -> dict[str, Any]:
    return {
        "text": one.text,
        "logprob": one.logprob,
        "logprob_per_token": one.logprob_per_token,
        "num_tokens": len(one.scores),
        "prob": one.prob,
        "share": one.share,
        "rank": one.rank,
        "rank_per_token": one.rank_per_token,
    }


def token_record(one: Score, text: str, text_of: TextOf) -> dict[str, Any]:
    """Give one token. text: the characters that it completes."""
    return {
        "id": one.token_id,
        "text": text,
        "logprob": one.logprob,
        "rank": one.rank,
        "surprisal": one.surprisal,
        "expected": None if one.expected_id is None else text_of(one.expected_id),
        "expected_id": one.expected_id,
        "expected_logprob": one.expected_logprob,
    }


def usage(num_before: int, num_tokens: int, num_scored: int) -> dict[str, int]:
    """Give the counts of tokens."""
    return {
        "context_tokens": num_before,
        "text_tokens": num_tokens,
        "scored_tokens": num_scored,
        "total_tokens": num_before + num_tokens,
    }
