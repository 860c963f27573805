"""Options that cannot be meant together."""

from __future__ import annotations

from collections.abc import Sequence

from ..generation.errors import UsageError


def refuse_together(pairs: Sequence[tuple[bool, str, bool, str]]) -> None:
    """Raise UsageError for two options that are both given and cannot both be meant."""
    for is_one, one, is_other, other in pairs:
        if is_one and is_other:
            raise UsageError(f"{one} and {other} contradict each other: give one of them.")


def refuse_lone_system(system: str | None, *, is_chat: bool) -> None:
    """Raise UsageError for a system text that no chat template takes."""
    if system is not None and not is_chat:
        raise UsageError("--system needs --chat, whose template has a place for it.")
