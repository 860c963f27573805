"""Data that was read, held against a JSON schema of this project: only what the schema names is kept."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from ..generation.errors import MOST_SHOWN

_LARGEST: Final = 2**63 - 1  # of a whole number; nothing here counts further
_HALF = re.compile("[\ud800-\udfff]")  # of a character
_NAMES: Final = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_KINDS: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class MisfitError(ValueError):
    """A value that its schema does not allow; the message says where, and what would be right."""


def fitted(value: Any, schema: Mapping[str, Any] | bool, place: str = "") -> Any:
    """Give a value without the keys that its schema does not name. Raises MisfitError for what is wrong.

    It knows the words that the schemas here use: type, const, enum, anyOf, minimum, maximum, maxLength, maxItems,
    required, properties, additionalProperties (a schema for all others) and items.
    """
    if isinstance(schema, bool):
        return value
    if "anyOf" in schema:
        return _first_fit(value, schema["anyOf"], place)
    _check_value(value, schema, place)
    if isinstance(value, dict):
        return _fitted_object(value, schema, place)
    if isinstance(value, list) and "items" in schema:
        items = schema["items"]
        return [fitted(item, items, f"{place}[{i}]") for i, item in enumerate(value)]
    return value


def _check_value(value: Any, schema: Mapping[str, Any], place: str) -> None:
    if "const" in schema and (value != schema["const"] or type(value) is not type(schema["const"])):
        raise _misfit(place, repr(schema["const"]), value)
    if "enum" in schema and value not in schema["enum"]:
        raise _misfit(place, f"one of {', '.join(map(repr, schema['enum']))}", value)
    kind = "null" if value is None else _KINDS[type(value)]
    wanted = schema.get("type", kind)
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if kind not in kinds and not (kind == "integer" and "number" in kinds):
        raise _misfit(place, " or ".join(_NAMES[name] for name in kinds), value)
    if kind in ("integer", "number"):
        _check_number(value, schema, place)
    elif kind == "string" and _HALF.search(value):
        raise _misfit(place, "a text of whole characters", value)
    for word in ("maxLength", "maxItems"):
        if word in schema and kind in ("string", "array") and len(value) > schema[word]:
            raise MisfitError(f"{place or 'it'} must be at most {schema[word]:,} long, not {len(value):,}")


def _check_number(value: float, schema: Mapping[str, Any], place: str) -> None:
    if not math.isfinite(value) if isinstance(value, float) else abs(value) > _LARGEST:
        raise _misfit(place, "a number within reach", value)
    if value < schema.get("minimum", -math.inf):
        raise _misfit(place, f"{schema['minimum']} or more", value)
    if value > schema.get("maximum", math.inf):
        raise _misfit(place, f"{schema['maximum']} or less", value)


def _fitted_object(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    for name in schema.get("required", ()):
        if name not in value:
            raise MisfitError(f"{_joined(place, name)} is missing")
    known, others = schema.get("properties", {}), schema.get("additionalProperties", False)
    kept = {}
    for name, item in value.items():
        wanted = known.get(name, others)
        if wanted is not False:
            kept[name] = fitted(item, wanted, _joined(place, name))
    return kept


def _first_fit(value: Any, schemas: list[Any], place: str) -> Any:
    for schema in schemas[:-1]:
        try:
            return fitted(value, schema, place)
        except MisfitError:
            continue
    return fitted(value, schemas[-1], place)


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _misfit(place: str, wanted: str, value: Any) -> MisfitError:
    text = repr(value)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return MisfitError(f"{place or 'it'} must be {wanted}, not {shown}")
