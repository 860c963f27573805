"""What each stage of the chain did to a step's distribution, and how far each setting could be turned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from ..generation.trace import KNOBS, Draw, Interval, Stage
from .columns import HEAD, Column, Row, cut, filled, lines_of
from .margin_words import MarginWords
from .tables import DROPPED, probability

_NAME = max(len(name) for name in KNOBS)
_WORDS = 26  # columns: "above 0.7012, below 0.8312"
_WHOLE_TITLES = 72  # columns from which they have room
_LEAST_WRAPPED = 14  # columns from which words are wrapped rather than cut


def stage_lines(draw: Draw, *, width: int, max_rows: int | None = None) -> list[RenderableType]:
    """Give one line for each stage, in the order of the chain: what it left, and how the chosen token stood in that.

    max_rows: lines in all; the model's own distribution and the last stages stay among them.
    """
    is_wide = width >= _WHOLE_TITLES
    columns = [
        Column("stage", max((len(one.name) for one in draw.stages), default=0), 0, is_right=False, least=11),
        Column("tokens left" if is_wide else "tokens", 6, 2),
        Column("mass removed" if is_wide else "removed", 7, 1),
        Column("entropy" if is_wide else "bits", 5, 3),
        Column("chosen p" if is_wide else "chosen", 6, 0),
        Column("rank", 4, 4),
    ]
    columns = [column._replace(width=max(column.width, len(column.title))) for column in columns]
    return lines_of(columns, [Row(_cells(one)) for one in _within(list(draw.stages), max_rows)], width)


def _within(stages: list[Stage], max_rows: int | None) -> list[Stage]:
    """Keep the first stage and the last ones, under one line of titles."""
    room = len(stages) if max_rows is None else max(max_rows - 1, 1)
    if len(stages) <= room:
        return stages
    num_last = max(room - 1, 1)
    return stages[: room - num_last] + stages[-num_last:]


def _cells(one: Stage) -> list[str]:
    numbers = [str(one.tokens_left), probability(one.mass_removed), f"{one.entropy:.2f}", probability(one.prob)]
    return [one.name, *numbers, str(one.rank)]


def margin_lines(draw: Draw, words: MarginWords, *, width: int) -> list[RenderableType]:
    """Give one line for each setting: where the token would be allowed, and where the same random number picks it.

    Where the columns have no room, only the second is told, on as many lines as it takes.
    """
    if not any(draw.margins.values()):
        return [Text(cut("margins not computed", width), style=HEAD, no_wrap=True)]
    rows = []
    for name, margin in draw.margins.items():
        allowed, picked = (margin.allowed, margin.picked) if margin else (None, None)
        rows.append(Row([name, words.say(name, allowed), words.say(name, picked)]))
    if width > _NAME + _WORDS:
        columns = [
            Column("setting", _NAME, 0, is_right=False),
            Column("allowed at", _WORDS, 1, is_right=False),
            Column("picked at", _WORDS, 0, is_right=False),
        ]
        return lines_of(columns, rows, width)
    told = [line for row in rows for line in _wrapped(f"{row.cells[0]} {row.cells[2]}", width)]
    return [Text(cut("picked at", width), style=HEAD, no_wrap=True), *(Text(line, no_wrap=True) for line in told)]


def unchanged_lines(margins: Mapping[str, Interval | None], words: MarginWords, *, width: int) -> list[RenderableType]:
    """Say within which numbers each setting, turned alone, leaves a whole text as it is."""
    title = _wrapped("unchanged, one setting at a time:", width)
    parts = [_wrapped(f"{name} {words.say(name, interval)}", width) for name, interval in margins.items()]
    if not any(margins.values()):
        parts = [_wrapped("not computed", width)]
    if parts and len(title[-1]) + 1 + len(parts[0][0]) <= width:
        parts[0][0] = f"{title.pop()} {parts[0][0]}"
    return [*map(Text, title), *filled([Text(line) for part in parts for line in part], width)]


class StageNote(NamedTuple):
    """What is left to know of a step's stages and margins when its tables are gone."""

    stages: Sequence[str]  # each stage's name and what it left
    picked: Sequence[str]  # each setting that is not free, and where it picks the token


def stage_note(draw: Draw, words: MarginWords) -> StageNote:
    """Give the note of one step."""
    stages = [
        f"{one.name} {one.tokens_left}" + (f" (removed {probability(one.mass_removed)})" if one.mass_removed else "")
        for one in draw.stages
    ]
    told = [(name, words.say(name, margin.picked)) for name, margin in draw.margins.items() if margin]
    return StageNote(stages, [f"{name} {said}" for name, said in told if said != "any"])


def note_lines(note: StageNote, *, width: int) -> list[Text]:
    """Give a note as lines beneath its token's, broken between its parts where that is possible."""
    indent = "" if width < _LEAST_WRAPPED else " " * (6 if width >= _WHOLE_TITLES else 2)
    room = width - len(indent)
    lines = filled([Text(part) for part in note.stages], room, between=" > ")
    picked = [f"picked at {part}" if i == 0 else part for i, part in enumerate(note.picked)]
    lines += filled([Text(part) for part in picked], room)
    return [Text(indent + line.plain, style=DROPPED, no_wrap=True) for line in lines]


def order_lines(draw: Draw, *, width: int) -> list[RenderableType]:
    """Say what another engine's order left of a step and minigen's own would not have, or the other way round."""
    effect = draw.order_effect
    if effect is None or effect.tokens_changed == 0:
        return []
    left = f"{effect.tokens_left} token{'s' * (effect.tokens_left != 1)}"
    told = f"order {effect.order} keeps {left}, minigen's {effect.own_tokens_left}; {effect.tokens_changed} differ"
    return [Text(line, no_wrap=True) for line in _wrapped(told, width)]


def _wrapped(text: str, width: int) -> list[str]:
    """Break a line between words, the later lines indented."""
    if width < _LEAST_WRAPPED:
        return [cut(text, width)]
    return [cut(line, width) for line in wrap(text, width, subsequent_indent=" ", break_on_hyphens=False)]
