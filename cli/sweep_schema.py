"""The JSON schema of the lines that `minigen sweep --jsonl` writes, version 1.

New keys may come; none of these changes its meaning. A change of meaning is a new version.
"""

from __future__ import annotations

from typing import Any, Final

_COUNT: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": ["number", "null"]}  # null: not finite, or nothing to count
_SHARE: Final = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_TEXT: Final = {"type": "string"}
_REASON: Final = {"enum": ["stop", "length", "context", "interrupted", "error"]}
_VALUES: Final = {"type": "object", "additionalProperties": {"type": ["number", "string"]}}  # by setting


def _record(keys: dict[str, Any], *, optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(keys), "properties": keys | (optional or {})}


TEXT: Final = _record(
    {
        "event": {"const": "text"},
        "schema": {"const": 1},
        "combination": _COUNT,
        "values": _VALUES,  # of the swept settings
        "sample": _COUNT,  # the place of its seed
        "seed": _COUNT,
        "text": _TEXT,
        "finish_reason": _REASON,
        "stop": {"type": ["string", "integer", "null"]},  # the stop string, or the end token's id
        "token_ids": {"type": "array", "items": _COUNT},  # the end token included
        "logprob_per_token": _NUMBER,  # natural logs of raw probabilities
        "distinct_1": _SHARE,
        "distinct_2": _SHARE,
        "usage": _record({"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT}),
    },
    optional={"error": _TEXT},
)
PARTING: Final = _record(
    {
        "seed": _COUNT,
        "index": _COUNT,  # of the first token that differs
        "id": _COUNT,
        "token": _TEXT,  # the token's own text; a special token's name
        "first_id": _COUNT,  # in the first combination
        "first_token": _TEXT,
    }
)
COMBINATION: Final = _record(
    {
        "event": {"const": "combination"},
        "schema": {"const": 1},
        "combination": _COUNT,
        "values": _VALUES,
        "model": _TEXT,
        "preset": _TEXT,
        "prompt": _TEXT,  # what the user gave, joined
        "seeds": {"type": "array", "items": _COUNT},
        "ignores_seeds": {"type": "boolean"},  # written once, for all seeds
        "num_texts": _COUNT,  # of which there is something
        "logprob_per_token": _NUMBER,  # over the tokens of all texts
        "distinct_1": _SHARE,  # over all texts together
        "distinct_2": _SHARE,
        "tokens_per_text": _NUMBER,
        "finish_reasons": {"type": "object", "additionalProperties": _COUNT},
        "num_compared": _COUNT,
        "first_difference": {"type": ["integer", "null"], "minimum": 0},  # the least index of the partings
        "partings": {"type": "array", "items": PARTING},
        "settings": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["value", "origin"],
                "properties": {"value": True, "origin": _TEXT},
                "additionalProperties": False,
            },
        },
    }
)
JSONL_SCHEMA: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "one line of minigen sweep --jsonl",
    "oneOf": [TEXT, COMBINATION],
}
