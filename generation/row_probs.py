"""The probabilities of one row of scores: to the last bit those of a softmax over the whole row.

Where few tokens are left, only what lies near them is read.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from .leading import Ids
from .weights import Scores

Probs = NDArray[np.floating]

BLOCK = 64  # numbers; a softmax sums as many apart, or a part of as many


def probs_of_row(scores: Scores) -> Probs:
    """Give the probabilities of a row `(vocab,)`; where few tokens are left, of a look at these alone."""
    is_left = scores > -np.inf
    if np.count_nonzero(is_left) * BLOCK > len(scores):
        return _softmax(scores)
    left, probs = np.flatnonzero(is_left), np.zeros(len(scores), np.float32)
    probs[left] = shares_of(scores, left)
    return probs


def shares_of(scores: Scores, ids: Ids) -> Probs:
    """Give the probabilities of tokens where no others are left.

    Only the blocks of the row that hold one of them are read. A block that holds none would add nothing to any of the
    sums that run side by side, so these are those of the whole row.
    """
    block = ids // BLOCK
    is_held = np.zeros(len(scores) // BLOCK + 1, dtype=bool)
    is_held[block] = True
    places = (is_held.cumsum()[block] - 1) * BLOCK + ids % BLOCK
    part = np.full(min(int(is_held.sum()) * BLOCK, len(scores)), -np.inf, np.float32)
    part[places] = scores[ids]
    return _softmax(part)[places]


def _softmax(row: Scores) -> Scores:
    probs: Scores = torch.from_numpy(row).softmax(-1).numpy()
    return probs
