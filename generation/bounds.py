"""What the chain leaves of a row of which only the highest logits are known, between two bounds.

The known tokens that surely rank first are the head, all others the tail: at most so many, each at most so likely, with
a mass between two bounds. Most filters keep a beginning of the ranking. So two cases are carried through the chain, in
which the least and the most is left: the heavier the rest of the distribution, the later in the ranking a random number
points. Where both cases point to the same token, no row that fits what is known could give another.

Weights are exp(score − the highest). They are float64; the sampler's are float32, and `ROUNDING` covers what that is
worth.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

ROUNDING = 1e-5  # relative; sums over 10⁵ tokens in float32 stay well within


class Undecidable(Exception):  # noqa: N818 - a finding rather than an error
    """What is known of a row does not settle what a filter does to it; the message says why, in plain words."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which a filtered row may have come out."""

    weights: Tensor  # (head,), falling, the first one 1
    sums: Tensor  # (head,), cumulative
    num_left: int  # tokens of the head that are left; the tail is left only together with all of it
    rest: float  # the mass of what is left of the tail

    @property
    def total(self) -> float:
        """The mass of all that is left."""
        return float(self.sums[self.num_left - 1]) + self.rest

    def first(self, num_left: int) -> "Case":
        """Give the case in which only this many tokens of the head are left, where there are more."""
        return self if num_left > self.num_left else replace(self, num_left=num_left, rest=0.0)

    def above(self, floor: float) -> "Case":
        """Give the case in which the head's tokens of this weight and more are left; the tail is not looked at."""
        count = max(1, int((self.weights >= floor).sum()))
        return self if count >= len(self.weights) else self.first(count)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The cases in which the least and the most is left of a row."""

    least: Case
    most: Case
    tail_count: int  # tokens in the tail, at most
    peak: float  # their weight, at most
    slack: float = ROUNDING  # what rounding is worth in the head, relative
    is_blurred: bool = False  # the cases' weights differ

    @property
    def is_exact(self) -> bool:
        """Whether it is certain which tokens are left."""
        return self.least.num_left == self.most.num_left and self.most.rest == 0


def case_of(weights: Tensor, rest: float) -> Case:
    """Give the case in which a whole head of these weights is left, and a tail of this mass."""
    return Case(weights, weights.cumsum(0), len(weights), rest)


def keep_count(bounds: Bounds, k: int) -> Bounds:
    """Keep the `k` likeliest tokens (top_k)."""
    head = len(bounds.most.weights)
    if k <= head:
        return replace(bounds, least=bounds.least.first(k), most=bounds.most.first(k))
    room = k - head
    share = min(1.0, room / bounds.tail_count) if bounds.tail_count else 1.0  # the likeliest have that much at least
    return replace(
        bounds,
        least=replace(bounds.least, rest=bounds.least.rest * share),
        most=replace(bounds.most, rest=min(bounds.most.rest, room * bounds.peak)),
        tail_count=min(bounds.tail_count, room),
    )


def keep_mass(bounds: Bounds, p: float) -> Bounds:
    """Keep a token while the mass ranked above it is below `p` (top_p)."""
    least = _within(bounds.least, p * (1 - bounds.slack), 0.0)
    return replace(bounds, least=least, most=_within(bounds.most, p * (1 + bounds.slack), bounds.peak))


def keep_above(bounds: Bounds, low: float, high: float) -> Bounds:
    """Keep tokens of at least a weight between `low` and `high`, and the first (min_p, top_n_sigma)."""
    low, high = low * (1 - bounds.slack), high * (1 + bounds.slack)
    least, most = bounds.least.above(high), bounds.most.above(low)
    if low > bounds.peak:
        return replace(bounds, least=replace(least, rest=0.0), most=replace(most, rest=0.0))
    return replace(bounds, least=replace(least, rest=max(0.0, least.rest - bounds.tail_count * high)), most=most)


def keep_likely(bounds: Bounds, low: float, high: float, *, always: float = math.inf) -> Bounds:
    """Keep tokens at least as likely as a number between `low` and `high`, and the likeliest (epsilon, eta, mirostat).

    always: a weight that is kept, however likely that is; 1 is the likeliest token's, and its equals'.
    """
    if bounds.is_blurred:
        raise Undecidable("the temperature depends on tokens that the trace does not keep")
    return keep_above(bounds, min(low * bounds.least.total, always), min(high * bounds.most.total, always))


def entropy(bounds: Bounds) -> tuple[float, float]:
    """Give bounds of the entropy of what is left, in nats."""
    least, most = bounds.least, bounds.most
    if bounds.is_blurred or least.num_left != most.num_left:
        raise Undecidable("the entropy depends on tokens that the trace does not keep")
    head = float(torch.special.xlogy(most.weights, most.weights)[: most.num_left].sum())  # of x ln x, never above 0
    rests = least.rest, most.rest
    highest = head + (least.rest * math.log(bounds.peak) if bounds.peak else 0.0)  # each at the peak
    lowest = head + min(_spread(rest, bounds.tail_count) for rest in rests)  # all alike
    if rests[0] < bounds.tail_count / math.e < rests[1]:
        lowest = head - bounds.tail_count / math.e
    low = math.log(least.total) - highest / most.total
    high = math.log(most.total) - lowest / least.total
    return low - ROUNDING * (1 + low), high + ROUNDING * (1 + high)


def pick_rank(bounds: Bounds, u: float, *, num_dropped: int = 0) -> int:
    """Give the place in the head at which the cumulative distribution reaches `u`.

    num_dropped: tokens that are gone from the beginning. Raises Undecidable where the two cases do not agree.
    """
    ranks = []
    for case, nudge in ((bounds.least, 1 - bounds.slack), (bounds.most, 1 + bounds.slack)):
        gone = float(case.sums[num_dropped - 1]) if num_dropped else 0.0
        target = gone + u * (case.total - gone) * nudge
        ranks.append(int(torch.searchsorted(case.sums, target, right=True)))
    if ranks[0] >= len(bounds.most.weights):
        raise Undecidable("the draw falls among the tokens that the trace does not keep")
    if ranks[0] != ranks[1] or ranks[1] >= bounds.least.num_left:
        raise Undecidable("it depends on how likely each of the tokens is that the trace does not keep")
    return ranks[0]


def _within(case: Case, p: float, step: float) -> Case:
    """Keep what reaches the share `p`; step: by how much the token that crosses it may go further."""
    target = p * case.total
    count = 1 + int((case.sums[: case.num_left] < target).sum())
    if count <= case.num_left:
        return case.first(count)
    head = float(case.sums[-1])
    return replace(case, rest=min(case.rest, max(0.0, target - head + step)))


def _spread(mass: float, count: int) -> float:
    """Give the sum of x ln x over a mass that is spread evenly; no other way has a lower one."""
    return mass * (math.log(mass) - math.log(count)) if mass > 0 and count else 0.0
