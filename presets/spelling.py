"""The nearest known word to a misspelt one."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_EDITS = 2


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Give the known word that was most likely meant, or None where nothing is near."""
    words = {_plain(name): name for name in known}
    wanted = _plain(word)
    if not wanted or len(wanted) > 100:
        return None
    edits = {name: _num_edits(wanted, name) for name in words}
    best = min(edits, key=lambda name: (edits[name], name), default=None)
    if best is not None and edits[best] <= min(MAX_EDITS, len(wanted) - 1):
        return words[best]
    for length in range(len(wanted), len(wanted) // 2, -1):
        if starting := sorted(name for name in words if name.startswith(wanted[:length])):
            return words[starting[0]]
    matches = get_close_matches(wanted, words, n=1)
    return words[matches[0]] if matches else None


def _plain(word: str) -> str:
    return word.casefold().replace("-", "_")


def _num_edits(one: str, other: str) -> int:
    """Count the letters to insert, drop, replace or swap with their neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            is_swapped = i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted
            row.append(min(cost, last[j - 2] + 1) if is_swapped else cost)
    return row[-1]


def flag_of(name: str) -> str:
    """Write a setting's name as its flag: `top_p` is `--top-p`."""
    return "--" + name.replace("_", "-")
