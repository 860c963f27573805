"""All that is said of one step: its candidates, and where that is wanted its stages and margins."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from ..generation.trace import Draw
from .margin_words import MarginWords
from .stage_tables import margin_lines, order_lines, stage_lines
from .tables import Names, candidate_table

_LEAST_CANDIDATES = 3  # lines: what was chosen, the titles, one candidate
_LEAST = 2  # lines of any other table: the titles, one row


def step_lines(step: int, draw: Draw, names: Names, words: MarginWords | None, *, width: int) -> list[RenderableType]:
    """Give every line of a step. words: None where stages and margins are not wanted."""
    lines = candidate_table(step, draw, names, width=width).renderables
    effect = order_lines(draw, width=width)
    if words is None:
        return [*lines, *effect]
    blocks = [lines, stage_lines(draw, width=width), margin_lines(draw, words, width=width)]
    return [line for block in blocks for line in [*block, Text("")]][:-1] + effect


def fitted_step_lines(
    step: int, draw: Draw, names: Names, words: MarginWords | None, *, width: int, rows: int
) -> list[RenderableType]:
    """Give what has room in `rows` lines: first some candidates, then the stages, the margins, the other candidates."""
    if not draw.candidates or rows < _LEAST_CANDIDATES or width < 1:
        return []
    stages: list[RenderableType] = []
    margins: list[RenderableType] = []
    effect = order_lines(draw, width=width)[: rows - _LEAST_CANDIDATES]
    left = rows - _LEAST_CANDIDATES - len(effect)
    if words is not None and left >= _LEAST:
        stages = stage_lines(draw, width=width, max_rows=left)
        left -= len(stages)
    if words is not None and left >= _LEAST:
        margins = margin_lines(draw, words, width=width)[:left]
        left -= len(margins)
    candidates = candidate_table(step, draw, names, width=width, max_rows=_LEAST_CANDIDATES + left)
    return [*candidates.renderables, *stages, *margins, *effect]
