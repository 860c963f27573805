"""A row of scores from the highest down, and what its tokens weigh at any temperature.

Sorting a whole vocabulary is slow, so only the leading tokens are ranked until more are asked for. Gaps and weights are
those of weights.py.
"""

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .leading import Ids, leading_ids
from .ranges import MAX_TEMPERATURE
from .weights import FAR, Floats, Scores, gaps_below, moments, pieces, running_sums, weights_of

Place = tuple[float, float, float]  # an argument, and a function's value and slope there

HEAD = 512  # tokens that are ranked at first
LEAST_INVERSE = 1 / MAX_TEMPERATURE
CLOSE = 2e-7  # a step leaves an error of about the square of this
MAX_STEPS = 100


class Ranking:
    """The tokens of a row `(vocab,)` that are not dropped, by rank: places count from 1, ties go by token id."""

    def __init__(self, row: Tensor, leading: Ids | None = None) -> None:
        """leading: ids of the highest scores, in order, where they are at hand; HEAD of them or more."""
        self._row = row.numpy()
        self._head_ids = leading_ids(row, HEAD).numpy() if leading is None else leading[:HEAD]
        highest = self._row[self._head_ids]
        self._highest = float(highest[0])
        self.size = int(np.count_nonzero(self._row > -np.inf))
        self._ranked: Floats = self._highest - highest.astype(np.float64)
        self._others: Floats | None = None  # the gaps of the tokens that are not ranked, in no order

    def rank(self, token_id: int) -> int:
        """Give the place of a token."""
        score = self._row[token_id]
        num_ties = np.count_nonzero(self._row[:token_id] == score)
        return 1 + int(np.count_nonzero(self._row > score)) + int(num_ties)

    def gap(self, place: int) -> float:
        """Give the gap of the token at a place."""
        return float(self._leading(place)[place - 1])

    def running(self, temperature: float, depth: int) -> Floats:
        """Give the running sums of the weights, over the first `depth` places at least, or over all of them."""
        depth = min(max(depth, HEAD), self.size)
        weights = np.concatenate([weights_of(part, 1 / temperature) for part in pieces(self._leading(depth)[:depth])])
        return running_sums(weights)

    def total(self, temperature: float, count: int) -> float:
        """Give what the first `count` places weigh together."""
        return sum(float(weights_of(part, 1 / temperature).sum()) for part in self._parts(0, count))

    def count_within(self, gap: float, depth: int) -> int:
        """Give how many tokens have no larger gap; exact up to `depth`, and larger than that where there are more."""
        ranked = self._leading(min(depth, self.size))
        count = int(ranked.searchsorted(gap, side="right"))
        return count if count < len(ranked) else count + (len(ranked) < self.size)

    def temperature_at(self, share: float, first: int, count: int, near: float) -> float:
        """Give the temperature at which the first `first` of `count` places have a share of what all of these weigh.

        The share falls as the temperature rises. 0 where it is no larger at any temperature, infinity where it is
        larger even at the highest. Found by the log-odds as a function of 1/T, which is close to a straight line: by
        Newton's method, then by cubics, within a bracket. It starts at the temperature `near`.
        """
        if first >= count or share <= 0:
            return math.inf
        goal = math.log(share) - math.log1p(-share)
        num_highest = min(self._num_highest(), count)
        if first < num_highest and math.log(first / (num_highest - first)) <= goal:
            return 0.0
        if num_highest == count:
            return math.inf
        low, high, inverse = 0.0, math.inf, max(1 / near, LEAST_INVERSE)  # `low` is 0 until a place is known
        before: Place | None = None
        for _ in range(MAX_STEPS):
            odds, slope = self._log_odds(first, count, inverse)
            if odds > goal:
                if inverse == LEAST_INVERSE:
                    return math.inf
                high = inverse
            else:
                low = inverse
            here = (inverse, odds, slope)
            guess = _reaching(goal, here, before)
            reach = abs(before[0] - inverse) if before is not None and before[2] > 0 else inverse
            if abs(guess - inverse) * reach <= CLOSE * inverse**2:
                return 1 / guess
            guess = LEAST_INVERSE if guess < LEAST_INVERSE and low == 0 else guess
            inverse, before = guess if low < guess < high else _between(low, high), here
        return 1 / inverse

    def _log_odds(self, first: int, count: int, inverse: float) -> tuple[float, float]:
        """Give log(what the first places weigh / what the others up to `count` weigh) at 1/T, and its slope there."""
        leading = self._leading(first + 1)
        total, mean = moments(leading[:first], inverse)
        start = float(leading[first])  # the others are weighed from their own highest: their sum never vanishes
        other_total = other_mean = 0.0
        for part in self._parts(first, count):
            part_total, part_mean = moments(part, inverse, start)
            other_total, other_mean = other_total + part_total, other_mean + part_mean
        odds = math.log(total) - math.log(other_total) + inverse * start
        return odds, other_mean / other_total - mean / total

    def _num_highest(self) -> int:
        """How many tokens share the highest score."""
        ties = int(self._ranked.searchsorted(0.0, side="right"))
        return ties if ties < len(self._ranked) else int(np.count_nonzero(self._row == self._highest))

    def _leading(self, count: int) -> Floats:
        """Give the gaps of `count` places or more, rising."""
        if count > len(self._ranked):
            self._ranked = gaps_below(self._highest, _falling(self._row)[: self.size])
        return self._ranked

    def _parts(self, first: int, count: int) -> list[Floats]:
        """Give the gaps of the places after `first` up to `count`, in a few pieces."""
        if len(self._ranked) < count == self.size and first <= len(self._ranked):
            if self._others is None:
                self._others = gaps_below(self._highest, self._row)
                self._others[self._head_ids] = FAR
            return [self._ranked[first:], *pieces(self._others)]
        return pieces(self._leading(count)[first:count])


class Sums:
    """Running sums of what the places of a ranking weigh at one temperature."""

    def __init__(self, ranking: Ranking, temperature: float) -> None:
        self._ranking, self._temperature = ranking, temperature
        self._sums = ranking.running(temperature, HEAD)

    @cached_property
    def _whole(self) -> float:
        return self._ranking.total(self._temperature, self._ranking.size)

    def weight(self, place: int) -> float:
        """Give what the token at a place weighs; the first one weighs 1."""
        return math.exp(-self._ranking.gap(place) / self._temperature)

    def upto(self, count: int) -> float:
        """Give what the first `count` places weigh together."""
        if count == 0:
            return 0.0
        return self._whole if count == self._ranking.size else float(self._leading(count)[count - 1])

    def reaching(self, weight: float, *, is_beyond: bool = False) -> int:
        """Give how many places it takes to weigh so much, or more than that; one too many if all together do not."""
        for count in (len(self._sums), self._ranking.size):
            place = int(self._leading(count).searchsorted(weight, side="right" if is_beyond else "left"))
            if place < count:
                return place + 1
            if self._whole < weight or (is_beyond and self._whole == weight):
                break
        return self._ranking.size + 1

    def _leading(self, count: int) -> Floats:
        if count > len(self._sums):
            self._sums = self._ranking.running(self._temperature, self._ranking.size)
        return self._sums


def _reaching(goal: float, here: Place, before: Place | None) -> float:
    """Give the argument at which a rising function reaches the goal: by its tangent, or by two places and slopes.

    Two places: the cubic of Hermite through the inverse function.
    """
    argument, value, slope = here
    if slope <= 0:
        return math.inf
    if before is None or before[1] == value or before[2] <= 0:
        return argument + (goal - value) / slope
    span, rise = before[0] - argument, before[1] - value
    part = (goal - value) / rise
    bend = part * (part - 1) * ((part - 1) * (rise / slope - span) + part * (rise / before[2] - span))
    return argument + part * span + bend


def _between(low: float, high: float) -> float:
    """Give a place in a bracket of inverse temperatures, which may have no end above."""
    return math.sqrt(max(low, LEAST_INVERSE) * high) if high < math.inf else max(low, LEAST_INVERSE) * 8


def _falling(row: Scores) -> Scores:
    """Sort scores, the highest first.

    As whole numbers in the same order, which sort several times faster: those of the bits, turned over below zero.
    """
    bits = (row + np.float32(0)).view(np.int32)  # −0.0 becomes 0.0
    keys = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))
    bits = ~torch.from_numpy(keys).sort().values.numpy()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(np.float32)
