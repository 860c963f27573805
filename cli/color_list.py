"""What colours say of each token, without colour: its value, a mark that grows from sure to unsure, its text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from ..generation.trace import Draw
from .coloring import SCALES, Measure, level_of, value_of
from .columns import Column, Row, filled, lines_of
from .tables import Names, probability

_MARK = "#"
_TITLES: dict[Measure, str] = {"prob": "raw p", "rank": "rank", "entropy": "entropy", "surprisal": "surprisal"}


class MeasuredToken(NamedTuple):
    """A token and what was measured."""

    label: str
    value: float


def measured_token(draw: Draw, names: Names, measure: Measure) -> MeasuredToken:
    """Give what the list says of one step."""
    return MeasuredToken(names.label(draw.token_id), value_of(draw, measure))


def color_list(tokens: Sequence[MeasuredToken], measure: Measure, *, width: int) -> list[RenderableType]:
    """Give one line for each token, under lines that say what the marks mean."""
    columns = [
        Column("step", 4, 2),
        Column(_TITLES[measure], max(6, len(_TITLES[measure])), 0),
        Column("mark", _width_of_marks(), 1, is_right=False),
        Column("token", 18, 0, is_right=False, least=6),
    ]
    rows = [
        Row([str(step), _written(value, measure), marks(level_of(value, measure)), label])
        for step, (label, value) in enumerate(tokens, start=1)
    ]
    return [*_legend(measure, width), *lines_of(columns, rows, width)]


def marks(level: int) -> str:
    """Give the mark of a level: one sign for sure, five for unsure."""
    return _MARK * (level + 1)


def _width_of_marks() -> int:
    return len(marks(len(SCALES["prob"].bounds)))


def _legend(measure: Measure, width: int) -> list[Text]:
    scale = SCALES[measure]
    parts = [f"{marks(level)} {label}" for level, label in enumerate(scale.labels)]
    words = [*wrap(f"marks by {scale.title}: {scale.ends[0]}", width), *parts, scale.ends[1]]
    return filled([Text(word) for word in words], width, between="  ")


def _written(value: float, measure: Measure) -> str:
    if measure == "prob":
        return probability(value)
    return f"{value:.0f}" if measure == "rank" else f"{value:.2f}"
