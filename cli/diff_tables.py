"""The tables of `minigen diff`, at any width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

from rich.console import Group, RenderableType
from rich.text import Text

from ..generation.comparing import Comparison, gains, losses, total
from .columns import Column, Row, cut, filled, lines_of
from .score_tables import bits, nats
from .tables import TOKEN, Names


class ComparisonTable:
    """Every token of the text, in blocks that line up under one line of titles."""

    def __init__(self, num_tokens: int, names: Names) -> None:
        self._names, self._num_done = names, 0
        self._columns = [
            Column("", len(str(num_tokens)), 3),
            TOKEN,
            Column("log p A", 8, 2),
            Column("log p B", 8, 2),
            Column("change", 8, 0),
            Column("KL bits", 8, 1),
        ]

    def block(self, found: Sequence[Comparison], width: int) -> Group:
        """Give the next tokens."""
        rows = [self._row(i, one) for i, one in enumerate(found, start=self._num_done + 1)]
        lines = lines_of(self._columns, rows, width)
        has_titles = self._num_done == 0
        self._num_done += len(found)
        return Group(*(lines if has_titles else islice(lines, 1, None)))

    def _row(self, number: int, one: Comparison) -> Row:
        token = self._names.label(one.a.token_id)
        return Row([str(number), token, nats(one.a.logprob), nats(one.b.logprob), change(one.change), bits(one.kl)])


def sum_lines(found: Sequence[Comparison], width: int) -> list[Text]:
    """Say what all tokens come to, as far as both prompts tell something about them."""
    sums = total(found)
    if sums.num_compared == 0:
        return filled([Text("no token can be compared: a prompt without tokens tells nothing of the first")], width)
    parts = [
        f"{sums.num_compared} of {len(found)} tokens compared",
        f"log p A {nats(sums.logprob_a)}",
        f"log p B {nats(sums.logprob_b)}",
        f"change {change(sums.change)} nats",
        f"KL {'-' if sums.kl is None else bits(sums.kl)} bits",
        _told(sums.logprob_a, sums.logprob_b),
    ]
    return filled([Text(part, no_wrap=True) for part in parts], width)


def _told(logprob_a: float, logprob_b: float) -> str:
    """Say how much likelier the whole text is after one prompt than after the other."""
    if logprob_a == logprob_b or not math.isfinite(logprob_a - logprob_b):
        return "as likely after B as after A" if logprob_a == logprob_b else "ruled out after one of them"
    factor = f"{math.exp(min(abs(logprob_b - logprob_a), 700)):.3g} times as likely"
    return f"after {'B' if logprob_b > logprob_a else 'A'} the text is {factor}"


def paid_lines(found: Sequence[Comparison], names: Names, count: int, width: int) -> list[list[RenderableType]]:
    """Give the tokens that the change of the prompt made likelier, and those that it made less likely."""
    parts = []
    for title, places in (
        ("likelier after B, the largest gains first:", gains(found, count)),
        ("less likely after B, the largest losses first:", losses(found, count)),
    ):
        if places:
            parts.append([Text(cut(title, width), no_wrap=True), *_paid(found, places, names, width)])
    return parts or [[Text(cut("no token changed", width), no_wrap=True)]]


def _paid(found: Sequence[Comparison], places: Sequence[int], names: Names, width: int) -> list[RenderableType]:
    columns = [Column("", len(str(len(found))), 1), TOKEN, Column("change", 8, 0), Column("p A to B", 18, 2)]
    rows = []
    for place in places:
        one = found[place]
        a, b = math.exp(one.a.logprob or 0.0), math.exp(one.b.logprob or 0.0)
        rows.append(Row([str(place + 1), names.label(one.a.token_id), change(one.change), f"{a:.3g} to {b:.3g}"]))
    return lines_of(columns, rows, width)


def change(value: float | None) -> str:
    """Write a change of log-probability, with its sign."""
    if value is None:
        return "-"
    return f"{value:+.4f}" if math.isfinite(value) else f"{value:+}"
