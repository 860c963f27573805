"""What filters leave of one row of scores, and its tokens in order of their scores."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .leading import Ids, ids_from, ranked
from .row_probs import Probs, probs_of_row, shares_of
from .weights import Scores

Ranked = tuple[Ids, Probs]  # leading tokens, highest score first, ties by id; and their probabilities

GAPS = (4.0, 7.0, 10.0)  # nats below the highest: few tokens of a row are near it, and most of its mass


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a row: all finite scores, or the leading tokens alone."""

    scores: Scores  # (vocab,)
    ids: Ids | None = None  # in order; None: every token

    def leading(self) -> Iterator[Ranked]:
        """Yield the leading tokens: all that are left, or some, then more, then all."""
        if self.ids is not None:
            yield self.ids, shares_of(self.scores, self.ids)
        else:
            yield from leading_of(self.scores, probs_of_row(self.scores))

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Tell which of some tokens are left."""
        return self.scores[ids] > -np.inf if self.ids is None else self._found(self.ids, ids)[0]

    def probs_of(self, ids: Ids) -> Probs:
        """Give the probabilities of some tokens among all that are left; 0 for one that is not."""
        if self.ids is None:
            return probs_of_row(self.scores)[ids]
        is_held, places = self._found(self.ids, ids)
        return np.where(is_held, shares_of(self.scores, self.ids)[places], np.float32(0))

    @staticmethod
    def _found(left: Ids, ids: Ids) -> tuple[NDArray[np.bool_], Ids]:
        """Tell which of some tokens are among those that are left, and where: any place for one that is not."""
        rising = left.argsort()
        places = rising[np.minimum(left.searchsorted(ids, sorter=rising), len(left) - 1)]
        return left[places] == ids, places


def leading_of(scores: Scores, probs: Probs) -> Iterator[Ranked]:
    """Yield the leading tokens of a row, `(vocab,)`: those near the highest, then more, then all."""
    highest, lowest = scores.max(), np.finfo(np.float32).min
    near = np.flatnonzero(scores >= max(highest - np.float32(GAPS[-1]), lowest))  # one look at the whole row
    nearby = scores[near]
    for gap in GAPS:
        ids = ranked(scores, near[nearby >= max(highest - np.float32(gap), lowest)])
        yield ids, probs[ids]
    ids = ids_from(scores, lowest)
    yield ids, probs[ids]
