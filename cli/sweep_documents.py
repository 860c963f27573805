"""The JSON lines of `minigen sweep`; `sweep_schema.py` says what stands in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..generation.orders import is_greedy
from .samples import CHOSEN_SEED
from .sweep_measures import distinct
from .sweep_texts import Combination, Parting, Summary, SweptText

SCHEMA: Final = 1
TextOf = Callable[[int], str]  # a token's own text


def text_record(text: SweptText, combination: Combination) -> dict[str, Any]:
    """Give the line of a text that has ended."""
    num_prompt, num_new = len(combination.prompt.ids), len(text.token_ids)
    record = {
        **_head("text", combination),
        "sample": text.index,
        "seed": text.seed,
        "text": text.text,
        "finish_reason": text.finish_reason,
        "stop": text.stop,
        "token_ids": text.token_ids,
        "logprob_per_token": text.logprob_per_token,
        "distinct_1": distinct([text.token_ids], 1),
        "distinct_2": distinct([text.token_ids], 2),
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_new,
            "total_tokens": num_prompt + num_new,
        },
    }
    return record if text.error is None else record | {"error": str(text.error)}


def combination_record(
    combination: Combination,
    summary: Summary,
    seeds: Sequence[int],
    *,
    model: str,
    preset: str,
    prompt: str,
    text_of: TextOf,
) -> dict[str, Any]:
    """Give the line of a combination."""
    first = summary.first_parting
    return {
        **_head("combination", combination),
        "model": model,
        "preset": preset,
        "prompt": prompt,
        "seeds": list(seeds),
        "ignores_seeds": is_greedy(combination.settings.params),
        "num_texts": summary.num_texts,
        "logprob_per_token": summary.logprob_per_token,
        "distinct_1": summary.distinct_1,
        "distinct_2": summary.distinct_2,
        "tokens_per_text": summary.tokens_per_text,
        "finish_reasons": dict(summary.finish_reasons),
        "num_compared": summary.num_compared,
        "first_difference": None if first is None else first.index,
        "partings": [_parting_record(one, text_of) for one in summary.partings],
        "settings": _settings(combination, seeds),
    }


def _head(event: str, combination: Combination) -> dict[str, Any]:
    return {
        "event": event,
        "schema": SCHEMA,
        "combination": combination.index,
        "values": dict(combination.values),
    }


def _parting_record(one: Parting, text_of: TextOf) -> dict[str, Any]:
    return {
        "seed": one.seed,
        "index": one.index,
        "id": one.token_id,
        "token": text_of(one.token_id),
        "first_id": one.first_token_id,
        "first_token": text_of(one.first_token_id),
    }


def _settings(combination: Combination, seeds: Sequence[int]) -> dict[str, Any]:
    """Give every setting with its origin; a seed that nobody gave is the first that was chosen."""
    settings = {name: choice._asdict() for name, choice in combination.settings.choices().items()}
    if settings["seed"]["value"] is None:
        settings["seed"] = {"value": seeds[0], "origin": CHOSEN_SEED}
    return settings
