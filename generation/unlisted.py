"""What is certain about the tokens of a row that are not known one by one.

With φ(a) = ln Σ exp(a · score) over them, φ(0) counts them and φ(1/T) is their mass at a temperature T. φ is known, or
bounded, at a few powers a. It is convex and nowhere steeper than their highest score, which bounds it everywhere.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import add, sub

import torch
from torch import Tensor

from .trace import TEMPERATURES, Leading

SUM_ERROR = 4e-6  # how far a sum at another temperature than 1 may be off: it is made of numbers of 32 bits


@dataclass(frozen=True, slots=True)
class Tail:
    """Bounds of φ at some powers, rising from 0 and 1 among them, and a score above which none of the tokens is."""

    powers: tuple[float, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]
    peak: float

    @property
    def count(self) -> int:
        """The most tokens that there may be."""
        return round(math.exp(self.most[0]))

    @property
    def least_count(self) -> int:
        """The fewest tokens that there may be."""
        return round(math.exp(self.least[0]))

    def bounds_at(self, power: float) -> tuple[float, float]:
        """Give bounds of φ at any power of 0 and more."""
        if self.count == 0:
            return -math.inf, -math.inf
        return max(self._lows(power)), min(self._highs(power))

    def _highs(self, power: float) -> Iterator[float]:
        """Yield upper bounds: the chord over the power, and what the highest score allows."""
        places = list(zip(self.powers, self.most, strict=True))
        yield from (high + (power - place) * self.peak for place, high in places if place <= power)
        for (left, low), (right, high) in pairwise(places):
            if left <= power <= right:
                yield low + (high - low) * (power - left) / (right - left)

    def _lows(self, power: float) -> Iterator[float]:
        """Yield lower bounds: chords that are drawn on past their ends, and what the highest score allows."""
        yield -math.inf
        places = list(zip(self.powers, self.least, self.most, strict=True))
        for i, (left, left_low, left_high) in enumerate(places):
            if left >= power:
                yield left_low - (left - power) * self.peak
            for right, right_low, right_high in places[i + 1 :]:
                if right <= power and right_low > -math.inf:
                    yield right_low + (power - right) * (right_low - left_high) / (right - left)
                elif left >= power and left_low > -math.inf:
                    yield left_low - (left - power) * (right_high - left_low) / (right - left)

    def below(self, score: float) -> "Tail":
        """Give the same tail with its scores counted from this one."""
        least, most = (
            tuple(each - power * score for power, each in zip(self.powers, sums, strict=True))
            for sums in (self.least, self.most)
        )
        return Tail(self.powers, least, most, self.peak - score)

    def joined(self, scores: Tensor) -> "Tail":
        """Count some known scores among the others."""
        if len(scores) == 0:
            return self
        added = self._sums(scores)
        return Tail(
            self.powers,
            tuple(map(log_add, self.least, added)),
            tuple(map(log_add, self.most, added)),
            max(self.peak, float(scores.max())),
        )

    def cut(self, low: float, high: float) -> "Tail":
        """Drop the scores below a floor between `low` and `high`."""
        return NOTHING if low > self.peak else replace(self, least=self._without(self.count, high))

    def changed(self, ceilings: Tensor, num_same: int, *, is_raised: bool) -> "Tail":
        """Change some scores, to `ceilings` at the highest, and leave `num_same` as they are.

        is_raised: a score may have gone up.
        """
        left = ceilings[ceilings > -math.inf]
        most = []
        for power, limit, raised in zip(self.powers, self.most, self._sums(left), strict=True):
            same = min(limit, math.log(num_same) + power * self.peak) if num_same else -math.inf
            bound = log_add(same, raised)
            most.append(bound if is_raised and power > 0 else min(bound, limit))
        highest = float(left.max()) if len(left) else -math.inf
        peak = max(self.peak if num_same else -math.inf, highest)
        return Tail(self.powers, self._without(len(ceilings), self.peak), tuple(most), peak)

    def _sums(self, scores: Tensor) -> list[float]:
        """Give φ of some known scores at each power; −∞ where there are none."""
        powers = torch.tensor(self.powers, dtype=torch.float64)
        sums: list[float] = torch.outer(powers, scores.double()).logsumexp(-1).tolist()
        return sums

    def _without(self, count: int, peak: float) -> tuple[float, ...]:
        """Give lower bounds for the case that so many tokens are gone, all of this score."""
        taken = [math.log(count) + power * peak if count else -math.inf for power in self.powers]
        return tuple(map(_log_subtract, self.least, taken))


NOTHING = Tail((0.0, 1.0), (-math.inf, -math.inf), (-math.inf, -math.inf), -math.inf)


def tail_of(leading: Leading, peak: float) -> Tail:
    """Give what a Leading says of the tokens that it does not list, none of which has a score above `peak`."""
    if leading.num_others == 0:
        return NOTHING
    exact = [(0.0, math.log(leading.num_others), 0.0), (1.0, leading.others_logsumexp, 0.0)]
    given = zip(TEMPERATURES, leading.others_logsumexps, strict=False)
    powers, sums, errors = zip(*sorted([*exact, *((1 / t, each, SUM_ERROR) for t, each in given)]), strict=True)
    return Tail(powers, tuple(map(sub, sums, errors)), tuple(map(add, sums, errors)), peak)


def log_add(one: float, other: float) -> float:
    """Give the natural log of the sum of two numbers from their natural logs."""
    high, low = max(one, other), min(one, other)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def _log_subtract(one: float, other: float) -> float:
    """Give the natural log of the difference of two numbers from their natural logs; −inf where it is below 0."""
    share = math.exp(min(0.0, other - one)) if other > -math.inf else 0.0
    return one + math.log1p(-share) if share < 1 else -math.inf
