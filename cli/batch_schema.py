"""The JSON schema of what `minigen batch` writes, a record a line, version 1.

New keys may come; none of these changes its meaning. A change of meaning is a new version.
"""

from __future__ import annotations

from typing import Any, Final

_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}


def _record(keys: dict[str, Any], *, optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(keys), "properties": keys | (optional or {})}


USAGE: Final = _record({"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT})
TRUNCATED: Final = _record({"kept": _COUNT, "dropped": _COUNT})  # tokens of what the user gave
RUN: Final = _record(
    {
        "model": _TEXT,
        "dtype": _TEXT,
        "mode": {"enum": ["chat", "raw"]},
        "seed": _COUNT,  # of line 1; line n has n − 1 more, where it says none of its own
    }
)  # and every other setting that is not neutral; a long value stands as its digest
RECORD: Final = _record(
    {
        "schema": {"const": 1},
        "id": {"type": ["string", "integer", "null"]},  # as the line gave it
        "line": {"type": "integer", "minimum": 1},
        "text": _TEXT,  # with an error: as far as it came
        "finish_reason": {"enum": ["stop", "length", "context", "error"]},
        "stop": {"type": ["string", "integer", "null"]},  # the stop string, or the end token's id
        "seed": {"type": ["integer", "null"], "minimum": 0},  # null: nothing was drawn
        "usage": USAGE,
        "input": {"type": "string", "pattern": "^[0-9a-f]{16}$"},  # the digest of the line
        "run": RUN,
    },
    optional={"error": _TEXT, "truncated": TRUNCATED},
)
BATCH_SCHEMA: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "one line of minigen batch",
} | RECORD
