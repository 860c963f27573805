"""What top_k, top_p and min_p keep of a ranking: some number of leading places, and never fewer as it gets warmer."""

import math
from dataclasses import dataclass

from .ranges import MAX_TEMPERATURE
from .ranking import HEAD, Ranking

COLDEST = 1e-200  # above 0, where the draw is greedy


@dataclass(frozen=True, slots=True)
class Kept:
    """The three filters over one ranking, each as it is set."""

    ranking: Ranking
    most: int  # the places that top_k leaves
    top_p: float
    min_p: float

    def count(self, temperature: float, depth: int) -> int:
        """Give how many places are kept; exact up to `depth`, and larger than that where there are more."""
        temperature, left = max(COLDEST, min(temperature, MAX_TEMPERATURE)), self.most
        if self.top_p < 1:
            sums = self.ranking.running(temperature, depth if depth <= HEAD else self.most)
            whole = float(sums[self.most - 1]) if len(sums) >= self.most else self.ranking.total(temperature, self.most)
            left = 1 + int(sums.searchsorted(self.top_p * whole))
        if self.min_p > 0:
            left = min(left, self.ranking.count_within(-temperature * math.log(self.min_p), depth))
        return max(1, min(left, self.most))

    def entry(self, place: int, near: float) -> tuple[float, bool]:
        """Give the temperature from which on a place is kept, and whether it is at that very temperature."""
        by_mass = 0.0
        if self.top_p < 1 and place > 1:
            by_mass = self.ranking.temperature_at(self.top_p, place - 1, self.most, near)
        by_ratio = self._entry_by_ratio(place)
        return max(by_mass, by_ratio), by_ratio > by_mass

    def passing(self, places: int, u: float, near: float, number: int) -> tuple[float, bool]:
        """Give the temperature from which on the draw at `u` goes past the first places, and whether it does there.

        With n places kept it goes past them from the temperature r(n) on at which their share of n has fallen to u. The
        n-th place is kept from e(n) on. r falls with n and e rises, so the answer lies where they cross: the lowest n
        with e(n) ≥ r(n) gives min(e(n), r(n − 1)). That n is looked for, from `number` on, which are kept at the
        temperature `near`. Infinity where there is no such temperature.
        """
        if u <= 0:
            return math.inf, False
        below, above = places, self._first_by_ratio(places, u)
        is_guessed = self.top_p >= 1
        while above - below > 1:
            if not below < number < above and not is_guessed:  # what is kept weighs top_p of all or hardly more
                guess = self.ranking.temperature_at(u * self.top_p, places, self.most, near)
                near = guess if 0 < guess < math.inf else near
                number, is_guessed = self.count(guess, self.most), True
            if not below < number < above:
                number = min(max(math.isqrt(below * above), below + 1), above - 1)
            found = self.ranking.temperature_at(u, places, number, near)
            near = found if 0 < found < math.inf else near
            left = self.count(found, number)
            if left == number:
                return found, found > 0
            below, above = (number, above) if left > number else (below, number)
            number = left if is_guessed else 0
        return self.entry(above, near) if above <= self.most else (math.inf, False)

    def _entry_by_ratio(self, place: int) -> float:
        """Give e(place) as far as min_p goes."""
        gap = self.ranking.gap(place)
        if self.min_p == 0 or gap == 0:
            return 0.0
        return gap / -math.log(self.min_p) if self.min_p < 1 else math.inf

    def _first_by_ratio(self, places: int, u: float) -> int:
        """Give the lowest n with e(n) ≥ r(n) as far as min_p goes, or one more than there are: an upper bound."""
        below, above, step = places, self.most + 1, 1
        while self.min_p > 0 and above - below > 1:
            number = min(below + step, (below + above) // 2) if above > self.most else (below + above) // 2
            temperature = max(self._entry_by_ratio(number), COLDEST)
            first, whole = self.ranking.total(temperature, places), self.ranking.total(temperature, number)
            if temperature > MAX_TEMPERATURE or first <= u * whole:
                above = number
            else:
                below, step = number, step * 2
        return above
