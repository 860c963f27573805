"""The JSON schemas of what `minigen score`, `diff` and `tokens` write with --json, version 1.

New keys may come; none of these changes its meaning. A change of meaning is a new version.
"""

from __future__ import annotations

from typing import Any, Final

_COUNT: Final = {"type": "integer", "minimum": 0}
_PLACE: Final = {"type": "integer", "minimum": 1}
_NUMBER: Final = {"type": ["number", "null"]}  # null: not finite, or nothing to count
_PROBABILITY: Final = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_TEXT: Final = {"type": "string"}
_MAYBE_TEXT: Final = {"type": ["string", "null"]}
_MAYBE_COUNT: Final = {"type": ["integer", "null"], "minimum": 0}
_MODE: Final = {"enum": ["raw", "chat"]}


def _record(keys: dict[str, Any], *, optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(keys), "properties": keys | (optional or {})}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


SCORED_TOKEN: Final = _record(
    {
        "id": _COUNT,
        "text": _TEXT,  # the characters that it completes; joined they are the whole text
        "logprob": _NUMBER,  # natural log of its raw probability; null with a null rank: nothing stands before it
        "rank": {"type": ["integer", "null"], "minimum": 1},
        "surprisal": _NUMBER,  # bits
        "expected": _MAYBE_TEXT,  # the likeliest token in its place
        "expected_id": _MAYBE_COUNT,
        "expected_logprob": _NUMBER,
    }
)
SURPRISING_TOKEN: Final = _record(
    {"index": _COUNT, "line": _PLACE, "column": _PLACE, **SCORED_TOKEN["properties"]},
)
OPTION: Final = _record(
    {
        "text": _TEXT,
        "logprob": _NUMBER,  # of all its tokens together
        "logprob_per_token": _NUMBER,
        "num_tokens": _COUNT,
        "prob": _PROBABILITY,
        "share": _PROBABILITY,  # of the probability of all options
        "rank": _PLACE,
        "rank_per_token": _PLACE,
    }
)
_HEAD: Final = {"schema": {"const": 1}, "model": _TEXT, "device": _TEXT, "dtype": _TEXT, "mode": _MODE}
_USAGE: Final = _record(
    {"context_tokens": _COUNT, "text_tokens": _COUNT, "scored_tokens": _COUNT, "total_tokens": _COUNT}
)
SCORE: Final = _record(
    {
        **_HEAD,
        "system": _MAYBE_TEXT,
        "text": _TEXT,
        "context": _MAYBE_TEXT,
        "tokens": _list(SCORED_TOKEN),
        "logprob": _NUMBER,
        "perplexity": _NUMBER,
        "bits_per_byte": _NUMBER,
        "window": _MAYBE_COUNT,
        "stride": _MAYBE_COUNT,
        "num_windows": _COUNT,
        "usage": _USAGE,
    },
    optional={"top_surprising": _list(SURPRISING_TOKEN)},
)
OPTIONS: Final = _record(
    {**_HEAD, "system": _MAYBE_TEXT, "context": _TEXT, "options": _list(OPTION), "usage": _USAGE},
)
EXPECT: Final = _record(
    {
        **_HEAD,
        "system": _MAYBE_TEXT,
        "context": _TEXT,
        "expect": _TEXT,
        "prob": _PROBABILITY,
        "logprob": _NUMBER,
        "min_prob": _PROBABILITY,
        "passed": {"type": "boolean"},
        "tokens": _list(SCORED_TOKEN),
        "usage": _USAGE,
    }
)
COMPARED_TOKEN: Final = _record(
    {
        "id": _COUNT,
        "text": _TEXT,
        "logprob_a": _NUMBER,
        "logprob_b": _NUMBER,
        "delta": _NUMBER,  # logprob_b − logprob_a, nats
        "kl": _NUMBER,  # KL(A || B), bits
    }
)
_PAID: Final = _list(_record({"index": _COUNT, **COMPARED_TOKEN["properties"]}))
DIFF: Final = _record(
    {
        **_HEAD,
        "system": _MAYBE_TEXT,
        "a": _TEXT,
        "b": _TEXT,
        "text": _TEXT,
        "tokens": _list(COMPARED_TOKEN),
        "logprob_a": _NUMBER,
        "logprob_b": _NUMBER,
        "delta": _NUMBER,
        "kl": _NUMBER,
        "gains": _PAID,
        "losses": _PAID,
        "usage": _record({"a_tokens": _COUNT, "b_tokens": _COUNT, "text_tokens": _COUNT, "compared_tokens": _COUNT}),
    }
)
PROMPT_TOKEN: Final = _record(
    {
        "index": _COUNT,
        "id": _COUNT,
        "piece": _MAYBE_TEXT,  # as the vocabulary stores it
        "text": _TEXT,
        "bytes": {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
        "special": {"type": "boolean"},
        "origin": _MAYBE_TEXT,  # text, tokenizer, template, a role, mixed; null: it cannot be told
    }
)
TOKENS: Final = _record(
    {
        "schema": {"const": 1},
        "model": _TEXT,
        "mode": _MODE,
        "system": _MAYBE_TEXT,
        "text": _TEXT,
        "tokens": _list(PROMPT_TOKEN),
        "counts": _record(
            {
                "tokens": _COUNT,
                "special_tokens": _COUNT,
                "text_tokens": _COUNT,
                "bytes": _COUNT,
                "words": _COUNT,
                "tokens_per_byte": _NUMBER,
                "tokens_per_word": _NUMBER,
            }
        ),
    }
)
