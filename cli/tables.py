"""Inspection tables at any width: one step's candidates, and one line per token of a whole text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rich.console import Group
from rich.text import Text

from ..generation.trace import Candidate, Draw
from .columns import HEAD, Column, Row, cut, lines_of

CHOSEN, DROPPED = "bold green", "dim"
TOKEN = Column("token", 18, 0, is_right=False, least=8)


class Names(Protocol):
    """What tables ask about tokens."""

    def label(self, token_id: int) -> str: ...


def candidate_table(step: int, draw: Draw, names: Names, *, width: int, max_rows: int | None = None) -> Group:
    """Give the candidates of one step, likeliest first, under a line that tells the chosen one.

    max_rows: lines in all; the chosen candidate stays among them.
    """
    columns = [
        Column("", 1, 0),
        Column("rank", 4, 3),
        TOKEN,
        Column("id", 6, 4),
        Column("logit", 8, 5),
        Column("raw p", 6, 1),
        Column("final p", 7, 0),
        Column("dropped by", 10, 2, is_right=False),
    ]
    rows = [_candidate_row(rank, one, draw, names) for rank, one in _ranked(draw)]
    title = Text(cut(headline(step, draw, names), width), style=HEAD, no_wrap=True)
    room = None if max_rows is None else max(max_rows - 2, 1)
    return Group(title, *lines_of(columns, _within(rows, room), width))


def headline(step: int, draw: Draw, names: Names) -> str:
    """Say in one line what was chosen at a step, and how it stood."""
    how = "greedy" if draw.u is None else f"u {draw.u:.4f}"
    told = f"entropy {draw.entropy:.2f}, surprisal {draw.surprisal:.2f} bits"
    return f"token {step}: {names.label(draw.token_id)}  rank {draw.rank}, {told}, {how}"


class SummaryRow(NamedTuple):
    """What is left to say of a step when its table is gone."""

    step: int
    token: str
    token_id: int
    raw_p: float
    final_p: float
    rank: int
    entropy: float  # bits
    runner_up: str


def summary_row(step: int, draw: Draw, names: Names) -> SummaryRow:
    """Give the line of one step in the summary of a text."""
    other = next((one for _, one in _ranked(draw) if one.token_id != draw.token_id), None)
    runner_up = "" if other is None else f"{probability(math.exp(other.logprob))} {names.label(other.token_id)}"
    return SummaryRow(
        step,
        names.label(draw.token_id),
        draw.token_id,
        math.exp(draw.logprob),
        draw.final_prob,
        draw.rank,
        draw.entropy,
        runner_up,
    )


def summary_table(rows: Sequence[SummaryRow], *, width: int) -> Group:
    """Give one line for each token of a text."""
    columns = [
        Column("step", 4, 2),
        TOKEN,
        Column("id", 6, 5),
        Column("raw p", 6, 1),
        Column("final p", 7, 0),
        Column("rank", 4, 3),
        Column("entropy", 7, 4),
        Column("likeliest other", 17, 6, is_right=False),
    ]
    return Group(*lines_of(columns, [Row(_summary_cells(row)) for row in rows], width))


def probability(p: float) -> str:
    """Write a probability in at most six columns; a very small one is not shown as none."""
    if p == 0:
        return "0"
    return "<.0001" if p < 0.00005 else f"{p:.4f}"


def _summary_cells(row: SummaryRow) -> list[str]:
    numbers = [probability(row.raw_p), probability(row.final_p), str(row.rank), f"{row.entropy:.2f}"]
    return [str(row.step), row.token, str(row.token_id), *numbers, row.runner_up]


def _ranked(draw: Draw) -> list[tuple[int, Candidate]]:
    """Pair the candidates with their ranks; only the chosen one can stand outside the likeliest."""
    ordered = sorted(draw.candidates, key=lambda one: (-one.logprob, one.token_id))
    return [(draw.rank if one.token_id == draw.token_id else rank, one) for rank, one in enumerate(ordered, start=1)]


def _candidate_row(rank: int, one: Candidate, draw: Draw, names: Names) -> Row:
    is_chosen = one.token_id == draw.token_id
    style = CHOSEN if is_chosen else DROPPED if one.dropped_by else ""
    cells = [
        ">" if is_chosen else "",
        str(rank),
        names.label(one.token_id),
        str(one.token_id),
        f"{one.logit:.3f}",
        probability(math.exp(one.logprob)),
        probability(one.final_prob),
        one.dropped_by or "",
    ]
    return Row(cells, style)


def _within(rows: list[Row], room: int | None) -> list[Row]:
    """Keep the first rows, and the chosen one."""
    if room is None or len(rows) <= room:
        return rows
    chosen = next((row for row in rows if row.style == CHOSEN), rows[0])
    return rows[:room] if chosen in rows[:room] else [*rows[: room - 1], chosen]
