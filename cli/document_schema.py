"""The JSON schema of the documents that `minigen run --json` and `--jsonl` write, version 1.

New keys may come; none of these changes its meaning. A change of meaning is a new version.
"""

from __future__ import annotations

from typing import Any, Final

_COUNT: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": ["number", "null"]}  # null: not finite, or not known
_PROBABILITY: Final = {"type": "number", "minimum": 0, "maximum": 1}
_ID: Final = {"type": ["integer", "null"]}
_TEXT: Final = {"type": "string"}


def _record(keys: dict[str, Any], *, optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(keys), "properties": keys | (optional or {})}


CANDIDATE: Final = _record(
    {
        "id": _COUNT,
        "text": _TEXT,  # the token's own text
        "logit": _NUMBER,
        "logprob": _NUMBER,  # natural log of the raw probability
        "final_prob": _PROBABILITY,
        "dropped_by": {"type": ["string", "null"]},  # the first filter that dropped it
    }
)
STAGE: Final = _record(
    {
        "name": _TEXT,  # "raw", then the names of settings
        "tokens_left": _COUNT,
        "mass_removed": _PROBABILITY,  # before this stage, of the tokens that it dropped
        "entropy": _NUMBER,  # bits, of what is left
        "prob": _PROBABILITY,  # of the chosen token
        "rank": {"type": "integer", "minimum": 1},
    }
)
INTERVAL: Final = _record(
    {
        "low": {"type": "number"},
        "high": {"type": "number"},
        "low_closed": {"type": "boolean"},  # whether `low` itself belongs to it
        "high_closed": {"type": "boolean"},
    }
)
_NOT_COMPUTED: Final = {"type": "null"}
MARGIN: Final = _record({"allowed": INTERVAL, "picked": INTERVAL})
ORDER_EFFECT: Final = _record(
    {
        "order": _TEXT,
        "tokens_left": _COUNT,
        "own_tokens_left": _COUNT,  # in minigen's order, of the same logits
        "tokens_changed": _COUNT,  # left by one of the two only
    }
)
_HOW: Final = {
    "logit": _NUMBER,
    "logprob": _NUMBER,
    "surprisal": _NUMBER,  # bits: −log2 of its raw probability
    "rank": {"type": "integer", "minimum": 1},  # among the raw logits
    "entropy": _NUMBER,  # bits, of the raw distribution
    "final_prob": _PROBABILITY,
    "u": _NUMBER,  # the uniform number behind the draw; null when greedy
    "order_effect": ORDER_EFFECT,  # with an order other than minigen's
    "candidates": {"type": "array", "items": CANDIDATE},  # with --inspect
    "stages": {"type": "array", "items": STAGE},  # with --stages
    "margins": {"type": "object", "additionalProperties": {"anyOf": [MARGIN, _NOT_COMPUTED]}},  # by setting
}
TOKEN: Final = _record(
    {
        "index": _ID,  # null: text that was held back, shown without a token
        "id": _ID,
        "text": _TEXT,  # the text that this token made safe to show; joined they are the whole
        "token": {"type": ["string", "null"]},  # the token's own text; a special token's name
    },
    optional=_HOW,
)
DOCUMENT: Final = _record(
    {
        "schema": {"const": 1},
        "sample": _COUNT,
        "model": _TEXT,
        "preset": _TEXT,
        "prompt": _TEXT,  # what the user gave, joined
        "text": _TEXT,
        "finish_reason": {"enum": ["stop", "length", "context", "interrupted", "error"]},
        "stop": {"type": ["string", "integer", "null"]},  # the stop string, or the end token's id
        "seed": _COUNT,
        "settings": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["value", "origin"],
                "properties": {"value": True, "origin": _TEXT},
                "additionalProperties": False,
            },
        },
        "usage": _record({"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT}),
        "timing": _record(
            {
                "load_seconds": _NUMBER,
                "first_token_seconds": _NUMBER,
                "prefill_tokens_per_second": _NUMBER,
                "decode_tokens_per_second": _NUMBER,  # null below two tokens
                "total_seconds": _NUMBER,
            }
        ),
        "memory": _record({"peak_bytes": {"type": ["integer", "null"], "minimum": 0}}),
    },
    optional={
        "margins": {"type": "object", "additionalProperties": {"anyOf": [INTERVAL, _NOT_COMPUTED]}},  # by setting
        "error": _TEXT,
        "tokens": {"type": "array", "items": TOKEN},
    },
)
_EVENT_TOKEN: Final = TOKEN | {
    "properties": TOKEN["properties"] | {"event": {"const": "token"}, "sample": _COUNT},
    "required": ["event", "sample", *TOKEN["required"]],
}
_EVENT_DONE: Final = DOCUMENT | {
    "properties": DOCUMENT["properties"] | {"event": {"const": "done"}},
    "required": ["event", *DOCUMENT["required"]],
}
JSON_SCHEMA: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "minigen run --json",
} | DOCUMENT
JSONL_SCHEMA: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "one line of minigen run --jsonl",
    "oneOf": [_EVENT_TOKEN, _EVENT_DONE],
}
