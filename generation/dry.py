"""DRY: a penalty for going on with what was said before, which grows with the length of the repetition.

Source: p-e-w 2024, "DRY: a modern repetition penalty", in the form of llama.cpp.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .ranges import RANGES

_MAX_LOG = 88.7228391  # of the largest float32
_NOTHING: Mapping[int, Sequence[Sequence[int]]] = {}


def apply_dry(
    logits: Tensor,
    seen_ids: Sequence[int],
    multiplier: float | None,
    *,
    base: float = 1.75,
    allowed_length: int = 2,
    breakers: Mapping[int, Sequence[Sequence[int]]] = _NOTHING,
) -> Tensor:
    """Subtract multiplier · base^(K − allowed_length) from a token that would make a repetition of K tokens longer.

    A run of K ≥ allowed_length tokens at the end of `seen_ids` that also stands further up, before some token, makes
    that token a repetition; the longest such run counts, and none reaches back across a breaker.
    breakers: by the id that begins one, what may finish it, () where it is whole. A whole one is never penalised.
    """
    if not multiplier:
        return logits
    multiplier = RANGES["dry_multiplier"].check("dry_multiplier", multiplier)
    base = RANGES["dry_base"].check("dry_base", base)
    newest_first = (seen_ids.tolist() if isinstance(seen_ids, Tensor) else list(seen_ids))[::-1]
    limit = _since_breaker(newest_first, breakers)
    if len(newest_first) <= allowed_length or limit < allowed_length:
        return logits
    longest = _longest_runs(newest_first, limit, allowed_length)
    ids = [token_id for token_id in longest if () not in map(tuple, breakers.get(token_id, ()))]
    if not ids:
        return logits
    most = int(_MAX_LOG / math.log(base)) if base > 1.000001 else math.inf  # a larger power is beyond float32
    penalties = [multiplier * base ** min(longest[token_id] - allowed_length, most) for token_id in ids]
    return _lowered(logits, ids, penalties)


def _longest_runs(newest_first: Sequence[int], limit: int, allowed_length: int) -> dict[int, int]:
    """Give each token that followed such a run, and the length of the longest before it, `limit` at most."""
    longest: dict[int, int] = {}
    for place, length in enumerate(_matches(newest_first)):
        if length >= allowed_length:
            follower = newest_first[place - 1]
            longest[follower] = max(min(length, limit), longest.get(follower, 0))
    return longest


def _since_breaker(newest_first: Sequence[int], breakers: Mapping[int, Sequence[Sequence[int]]]) -> int:
    """Count the tokens after the last whole breaker: all of them where there is none."""
    for place in (i for i, token_id in enumerate(newest_first) if token_id in breakers):
        tails = breakers[newest_first[place]]
        lengths = [len(tail) for tail in tails if _is_before(newest_first, place, tail)]
        if lengths:
            return place - max(lengths)
    return len(newest_first)


def _is_before(newest_first: Sequence[int], place: int, tail: Sequence[int]) -> bool:
    """Whether `tail` is what was said right after the id at `place`."""
    return len(tail) <= place and list(tail) == list(reversed(newest_first[place - len(tail) : place]))


def _matches(ids: Sequence[int]) -> list[int]:
    """Give, for each place but the first, how many ids from there on are those from the first on (the Z-algorithm)."""
    count, lengths = len(ids), [0] * len(ids)
    left = right = 0  # ids[left:right] are the ids from the first on; right is as far as any match has reached
    for place in range(1, count):
        if ids[place] != ids[0]:
            continue
        if place < right and lengths[place - left] < right - place:
            lengths[place] = lengths[place - left]
            continue
        end = max(right, place + 1)
        while end < count and ids[end] == ids[end - place]:
            end += 1
        left, right, lengths[place] = place, end, end - place
    return lengths


def _lowered(logits: Tensor, ids: Sequence[int], penalties: Sequence[float]) -> Tensor:
    """Subtract from single scores; what falls below every number becomes the lowest one, as DRY bans nothing."""
    limits = torch.finfo(logits.dtype)
    where = torch.tensor(ids, device=logits.device)
    amounts = torch.tensor([min(each, limits.max) for each in penalties], dtype=logits.dtype, device=logits.device)
    scores = logits.index_select(-1, where)
    lowered = torch.where(scores == -torch.inf, scores, (scores - amounts).clamp(min=limits.min))
    return logits.index_copy(-1, where, lowered)
