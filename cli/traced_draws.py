"""From the records of a trace back to what the engine gave: outputs, draws, intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..generation.trace import Candidate, Draw, Interval, Margin, OrderEffect, Output, Stage


def output_of(record: Mapping[str, Any]) -> Output:
    """Give what the step of a token's record did."""
    return Output(request_id="", text=record["text"], token_id=record["id"], draw=draw_of(record))


def draw_of(record: Mapping[str, Any]) -> Draw:
    """Give the draw that a token's record tells of."""
    effect = record.get("order_effect")
    return Draw(
        token_id=record["id"],
        logit=_number(record["logit"]),
        logprob=_number(record["logprob"]),
        rank=record["rank"],
        entropy=record["entropy"],
        final_prob=record["final_prob"],
        u=record["u"],
        candidates=tuple(_candidate(each) for each in record.get("candidates", ())),
        stages=tuple(Stage(**each) for each in record.get("stages", ())),
        margins={name: _margin(each) for name, each in record.get("margins", {}).items()},
        order_effect=None if effect is None else OrderEffect(**effect),
    )


def _candidate(record: Mapping[str, Any]) -> Candidate:
    return Candidate(
        token_id=record["id"],
        logit=_number(record["logit"]),
        logprob=_number(record["logprob"]),
        final_prob=record["final_prob"],
        dropped_by=record["dropped_by"],
    )


def _margin(record: Mapping[str, Any] | None) -> Margin | None:
    if record is None:
        return None
    allowed, picked = interval_of(record["allowed"]), interval_of(record["picked"])
    return None if allowed is None or picked is None else Margin(allowed=allowed, picked=picked)


def interval_of(record: Mapping[str, Any] | None) -> Interval | None:
    """Give an interval; None where it was not computed."""
    if record is None:
        return None
    return Interval(
        low=record["low"],
        high=record["high"],
        is_low_closed=record["low_closed"],
        is_high_closed=record["high_closed"],
    )


def _number(value: float | None) -> float:
    return float("-inf") if value is None else value
