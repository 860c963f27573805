"""The JSON schema of each line of a trace file, version 1. `document_schema.py` says what a token and a document are.

New keys may come; none of these changes its meaning. A change of meaning is a new version.
"""

from __future__ import annotations

from typing import Any, Final

from ..generation.ranges import MAX_SEED
from ..generation.trace import TEMPERATURES
from .document_schema import DOCUMENT, TOKEN

VERSION: Final = 1
MAX_VOCAB: Final = 2**24  # many times the largest there is
MAX_WIDTH: Final = 1_000_000

_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_IDS: Final = {"type": "array", "items": _COUNT}
_LISTS: Final = {"type": "array", "items": _IDS}
_SEED: Final = {"type": "integer", "minimum": 0, "maximum": MAX_SEED}


def _event(name: str, keys: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    named = {"event": {"const": name}} | keys
    return {"type": "object", "required": list(named), "properties": named | (optional or {})}


HEADER: Final = _event(
    "trace",
    {
        "version": {"const": VERSION},
        "minigen": _TEXT,  # the version of the program
        "width": {"type": "integer", "minimum": 1, "maximum": MAX_WIDTH},  # logits kept of each step
        "vocab_size": {"type": "integer", "minimum": 1, "maximum": MAX_VOCAB},
        "model": _TEXT,
        "preset": _TEXT,
        "prompt": _TEXT,  # what the user gave, joined
        "settings": DOCUMENT["properties"]["settings"],
        "prompt_ids": _IDS,  # what the model read
        "end_token_ids": _IDS,  # those that min_new_tokens holds back
        "bad_word_ids": _LISTS,  # each way of writing a bad word
        "dry_breaker_ids": {"type": "object", "additionalProperties": _LISTS},  # by first id: what may finish it
        "newline_ids": _IDS,  # a line break's, which one engine's XTC spares
    },
)
SAMPLE: Final = _event("sample", {"sample": _COUNT, "seed": _SEED})
LEADING: Final = {
    "type": "object",
    "required": ["ids", "logits", "num_others", "others_logsumexp", "others_logsumexps", "deviation"],
    "properties": {
        "ids": _TEXT,  # base64 of unsigned 32-bit numbers, little-endian; highest logit first, ties by id
        "logits": _TEXT,  # base64 of 32-bit floats, little-endian, in the same order
        "num_others": _COUNT,  # tokens that are not listed and that the model did not rule out
        "others_logsumexp": {"type": ["number", "null"]},  # of their logits; null: there are none
        "others_logsumexps": {
            "type": "array",
            "items": {"type": "number"},
            "maxItems": len(TEMPERATURES),
        },  # of logit / T
        "deviation": {"type": ["number", "null"]},  # standard deviation of all logits that are not ruled out
    },
}
_TRACED: Final = {
    "special": {"type": "boolean"},  # a token that steers the model rather than being text
    "leading": LEADING,
    "texts": {"type": "object", "additionalProperties": _TEXT},  # of leading tokens not named before, by id
}
EVENT_TOKEN: Final = _event(
    "token",
    {"sample": _COUNT} | {name: TOKEN["properties"][name] for name in TOKEN["required"]},
    TOKEN["properties"] | _TRACED,
)
DOCUMENT_KEYS: Final = {name: kind for name, kind in DOCUMENT["properties"].items() if name != "tokens"}
EVENT_DONE: Final = _event(
    "done",
    {name: DOCUMENT_KEYS[name] for name in DOCUMENT["required"]},
    DOCUMENT_KEYS,
)
LINES: Final = {
    "trace": HEADER,
    "sample": SAMPLE,
    "token": EVENT_TOKEN,
    "done": EVENT_DONE,
}
TRACE_SCHEMA: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "one line of a trace, minigen run --trace",
    "oneOf": list(LINES.values()),
}
