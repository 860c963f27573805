"""The tables of `minigen score`, at any width: every token, the most surprising ones, and continuations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from .columns import Column, Row, filled, lines_of
from .escaping import quoted
from .tables import TOKEN, Names, probability

if TYPE_CHECKING:
    from ..generation.continuations import Continuation
    from ..generation.pieces import Lines, Piece
    from ..generation.scoring import Score, Summary

_NOTHING = "-"  # where there is no number


class TokenTable:
    """Every token of a text, in blocks that line up: one line each, under one line of titles."""

    def __init__(self, num_tokens: int, vocab_size: int, names: Names) -> None:
        self._names, self._num_done = names, 0
        self._columns = [
            Column("", len(str(num_tokens)), 4),
            TOKEN,
            Column("log p", 8, 3),
            Column("rank", max(4, len(str(vocab_size))), 2),
            Column("surprisal", 9, 0),
            Column("expected", 10, 1, is_right=False),
        ]

    def block(self, scores: Sequence[Score], width: int) -> Group:
        """Give the next tokens."""
        rows = [self._row(i, one) for i, one in enumerate(scores, start=self._num_done + 1)]
        lines = lines_of(self._columns, rows, width)
        has_titles = self._num_done == 0
        self._num_done += len(scores)
        return Group(*(lines if has_titles else islice(lines, 1, None)))

    def _row(self, number: int, one: Score) -> Row:
        rank = _NOTHING if one.rank is None else str(one.rank)
        expected = _NOTHING if one.expected_id is None else self._names.label(one.expected_id)
        token = self._names.label(one.token_id)
        return Row([str(number), token, nats(one.logprob), rank, bits(one.surprisal), expected])


def surprising_table(
    places: Sequence[int], scores: Sequence[Score], pieces: Sequence[Piece], lines: Lines, names: Names, width: int
) -> Group:
    """Give the tokens at some places among all, with the line and the column where each begins."""
    rows = []
    for place in places:
        one, (line, column) = scores[place], lines.at(pieces[place].start)
        expected = _NOTHING if one.expected_id is None else names.label(one.expected_id)
        rows.append(Row([f"{line}:{column}", bits(one.surprisal), names.label(one.token_id), expected]))
    columns = [
        Column("line:col", max([8, *(len(row.cells[0]) for row in rows)]), 0, is_right=False),
        Column("surprisal", 9, 0),
        TOKEN,
        Column("expected", 10, 1, is_right=False),
    ]
    return Group(*lines_of(columns, rows, width))


def options_table(found: Sequence[Continuation], width: int) -> Group:
    """Give continuations, likeliest first."""
    rows = [
        Row(
            [
                str(one.rank),
                quoted(one.text),
                nats(one.logprob),
                nats(one.logprob_per_token),
                str(len(one.scores)),
                _NOTHING if one.share is None else probability(one.share),
            ]
        )
        for one in found
    ]
    columns = [
        Column("", 1, 0),
        Column("option", 40, 0, is_right=False, least=8),
        Column("log p", 8, 1),
        Column("per token", 9, 2),
        Column("tokens", 6, 3),
        Column("share", 6, 0),
    ]
    return Group(*lines_of(columns, rows, width))


def summary_lines(summary: Summary, num_tokens: int, width: int) -> list[Text]:
    """Say what a text came to."""
    if summary.perplexity is None or summary.bits_per_byte is None:
        return filled([Text("no token could be scored: nothing stands before the first")], width)
    parts = [
        f"{summary.num_scored} of {num_tokens} tokens scored",
        f"log p {nats(summary.logprob)}",
        f"perplexity {summary.perplexity:.6g}",
        f"{summary.bits_per_byte:.4f} bits per byte",
    ]
    return filled([Text(part, no_wrap=True) for part in parts], width)


def nats(value: float | None) -> str:
    """Write a log-probability."""
    return _NOTHING if value is None else "-inf" if value == -math.inf else f"{value:.4f}"


def bits(value: float | None) -> str:
    """Write a surprisal."""
    return _NOTHING if value is None else "inf" if value == math.inf else f"{value:.2f}"


def spaced(*groups: Sequence[RenderableType]) -> Group:
    """Part groups of lines by empty ones."""
    return Group(*(line for i, group in enumerate(groups) for line in ([Text()] * (i > 0) + list(group))))
