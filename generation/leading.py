"""Which tokens of a row lead it: the ids of its highest scores, in order, without sorting the whole of it."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .weights import Scores

Ids = NDArray[np.int64]

LEAST_WIDTH = 512  # columns; fewer are read more slowly
SLACK = 2.0**-20  # part of a score by which others differ from it at most, if their quotients are its own
LEAST_SLACK = 2.0**-125  # that quotients differ by which may be taken for nothing


def leading_ids(scores: Tensor, count: int) -> Tensor:
    """Give the ids of the `count` highest finite scores of one row `(vocab,)`, in order, ties by id; or fewer."""
    row = scores.numpy()
    return torch.from_numpy(ids_from(row, _edge_of(row, count))[:count])


def leading_quotients(row: Scores, divisor: np.float32, count: int) -> tuple[Ids, Scores]:
    """Give the ids that `leading_ids` gives of `row / divisor`, and their quotients, which must be finite for all.

    Only what reaches the edge, or nearly, is divided: what is farther below it is so when it is divided and rounded.
    """
    edge = float(_edge_of(row, count))
    lowest = edge - SLACK * abs(edge) - LEAST_SLACK * float(divisor)
    ids = np.flatnonzero(row >= np.float32(max(lowest, float(np.finfo(np.float32).min))))
    quotients = row[ids] / divisor
    order = _in_order(quotients, ids)[:count]
    places = ids.searchsorted(order)
    return order, quotients[places]


def ids_from(row: Scores, lowest: np.float32) -> Ids:
    """Give the ids of all scores of a row `(vocab,)` from `lowest` on, highest first, ties by id."""
    return ranked(row, np.flatnonzero(row >= lowest))


def ranked(row: Scores, ids: Ids) -> Ids:
    """Give some ids of a row `(vocab,)` by their scores, highest first, ties by id.

    In numpy, which starts no threads for it and sorts whole numbers fast: those of the bits, turned over below zero.
    """
    return _in_order(row[ids], ids)


def _in_order(scores: Scores, ids: Ids) -> Ids:
    """Give ids by their scores, highest first, ties by id."""
    bits = (scores + np.float32(0)).view(np.int32)  # −0.0 becomes 0.0
    keys = (~(bits ^ ((bits >> 31) & 0x7FFFFFFF))).astype(np.int64) << 32 | ids
    keys.sort()
    in_order: Ids = keys & 0xFFFFFFFF
    return in_order


def _edge_of(row: Scores, count: int) -> np.float32:
    """Give a finite score that at least `count` tokens reach, though not many more; the lowest one where so few are.

    Of all columns of a table that holds the row, `count` have a maximum that reaches it.
    """
    width, lowest = max(2 * count, LEAST_WIDTH), np.finfo(np.float32).min
    if width > len(row):
        return lowest
    highest = row[: len(row) // width * width].reshape(-1, width).max(0)
    highest.partition(width - count)
    return max(highest[width - count], lowest)
