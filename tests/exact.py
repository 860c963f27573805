"""The filters once more, in plain Python and float64, to hold the library's numbers against."""

import math
from collections.abc import Sequence

from minigen.generation.params import SamplingParams

Row = list[float]


def shares(row: Row) -> list[float]:
    """Give the probabilities of scores."""
    highest = max(row)
    weights = [math.exp(score - highest) for score in row]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def ranked(row: Row) -> list[int]:
    """Give the ids that are not dropped, the likeliest first, ties by id."""
    return [i for i in sorted(range(len(row)), key=lambda i: (-row[i], i)) if row[i] > -math.inf]


def keep(row: Row, ids: Sequence[int]) -> Row:
    """Drop all other ids."""
    kept = set(ids)
    return [score if i in kept else -math.inf for i, score in enumerate(row)]


def with_top_n_sigma(row: Row, n: float) -> Row:
    left = [score for score in row if score > -math.inf]
    mean = math.fsum(left) / len(left)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in left) / len(left))
    least = max(row) - n * deviation
    return [score if score >= least else -math.inf for score in row]


def with_top_p(row: Row, p: float) -> Row:
    probs, above, kept = shares(row), 0.0, []
    for i in ranked(row):
        if kept and above >= p:
            break
        kept.append(i)
        above += probs[i]
    return keep(row, kept)


def with_min_p(row: Row, m: float) -> Row:
    probs = shares(row)
    least = m * max(probs)
    return keep(row, [i for i in ranked(row) if probs[i] >= least])


def filtered(row: Row, params: SamplingParams) -> list[tuple[str, Row]]:
    """Give the row after each of the filters that margins follow, in order, the row itself first."""
    rows = [("raw", row)]
    if params.top_n_sigma > 0:
        rows.append(("top_n_sigma", with_top_n_sigma(rows[-1][1], params.top_n_sigma)))
    if params.temperature != 1:
        highest = max(rows[-1][1])
        rows.append(("temperature", [(score - highest) / params.temperature for score in rows[-1][1]]))
    if params.top_k > 0:
        rows.append(("top_k", keep(rows[-1][1], ranked(rows[-1][1])[: params.top_k])))
    if params.top_p < 1:
        rows.append(("top_p", with_top_p(rows[-1][1], params.top_p)))
    if params.min_p > 0:
        rows.append(("min_p", with_min_p(rows[-1][1], params.min_p)))
    return rows


def drawn(row: Row, u: float) -> int:
    """Invert the cumulative distribution at `u`."""
    probs, reached = shares(row), 0.0
    for i in ranked(row):
        reached += probs[i]
        if u < reached:
            return i
    return ranked(row)[-1]


def entropy(row: Row) -> float:
    """Give the entropy in bits."""
    return -math.fsum(prob * math.log2(prob) for prob in shares(row) if prob > 0)
