"""What texts come to, by their token ids: how varied they are, and where two of them part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def distinct(texts: Iterable[Sequence[int]], size: int) -> float | None:
    """Give the share of different n-grams among all n-grams of some texts; None where there are none.

    An n-gram lies within one text. Source: Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
    Conversation Models" (distinct-1 and distinct-2), here over tokens.
    """
    found: set[tuple[int, ...]] = set()
    total = 0
    for ids in texts:
        grams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
        found.update(grams)
        total += len(grams)
    return len(found) / total if total else None


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Give the index of the first token in which two texts differ, as far as both go; None where there is none."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
