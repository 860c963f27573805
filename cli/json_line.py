"""Data as one line of strict JSON: no NaN, no infinity, no half of a character, nothing that steers a terminal."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

# Valid in JSON as they stand, but not safe on a terminal or in a line-based reader.
_ESCAPED = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_HALF = re.compile("[\ud800-\udfff]")  # of a character; strict readers refuse it even escaped


def line_of(data: Any, *, is_ascii: bool = False) -> str:
    """Write data as one line of strict JSON."""
    try:
        text = _dumped(strict(data) if is_ascii else data, is_ascii)  # halves are mended before they are escaped
    except (TypeError, ValueError):  # not plain data, or a number that is not finite
        text = _dumped(strict(data), is_ascii)
    if not text.isascii():
        text = _HALF.sub("\ufffd", text)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _dumped(data: Any, is_ascii: bool) -> str:
    return json.dumps(data, ensure_ascii=is_ascii, allow_nan=False, separators=(",", ":"))


def strict(value: Any) -> Any:
    """Give plain JSON data: null for a number that is not finite, text for keys, U+FFFD for half of a character."""
    if isinstance(value, str):
        return value if value.isascii() else _HALF.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return {strict(str(key)): strict(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [strict(item) for item in value]
    return value


def is_unicode(stream: TextIO) -> bool:
    """Whether a stream takes every character."""
    return (stream.encoding or "").lower().replace("-", "") in ("utf8", "utf8sig")
