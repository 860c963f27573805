"""A setting's value as people read it, the same wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping


def written(value: object) -> str:
    """Write a setting's value: `0.8`, `true`, `257=-5`, `none`.

    A token's bias may come from JSON, where null stands for −inf.
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={'-inf' if one is None else written(one)}" for key, one in value.items()) or "none"
    if isinstance(value, tuple | list):
        return ", ".join(map(repr, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else str(value)
