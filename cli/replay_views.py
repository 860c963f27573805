"""What a replay shows: a table of the tokens and what it comes to in sentences, or one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .setting_words import written
from .trace_file import Trace, TracedSample
from .traced_names import TracedNames
from .traced_settings import ReplaySettings

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..generation.replay import Redraw

SCHEMA: Final = 1
_PARTING = "From here on a real run would go another way: each token is drawn given the recorded text."
_MOST_LISTED = 10  # token numbers in a sentence
_KEPT = "the trace does not keep"  # what a wider trace would help against


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One sample of a trace, drawn again."""

    file: str
    trace: Trace
    sample: TracedSample
    settings: ReplaySettings
    seed: int
    redraws: Sequence[Redraw]

    @property
    def first_difference(self) -> int | None:
        """The index of the first token that would have been another one; None where no decided one would."""
        return next((redraw.index for redraw in self.redraws if redraw.differs), None)

    @property
    def undecided(self) -> list[int]:
        """The indices of the tokens that are not decided."""
        return [redraw.index for redraw in self.redraws if not redraw.is_decided]


def replay_document(replayed: Replayed) -> dict[str, Any]:
    """Give a replay as plain JSON data; docs/trace.md says what stands in it."""
    header, names = replayed.trace.header, TracedNames(replayed.trace)
    return {
        "schema": SCHEMA,
        "file": replayed.file,
        "model": header.model,
        "sample": replayed.sample.index,
        "seed": replayed.seed,
        "settings": {name: choice._asdict() for name, choice in replayed.settings.choices.items()},
        "changed": replayed.settings.changed,
        "first_difference": replayed.first_difference,
        "undecided": replayed.undecided,
        "tokens": [_token_record(redraw, names) for redraw in replayed.redraws],
    }


def _token_record(redraw: Redraw, names: TracedNames) -> dict[str, Any]:
    return {
        "index": redraw.index,
        "id": redraw.token_id,
        "text": None if redraw.token_id is None else names.text(redraw.token_id),
        "recorded_id": redraw.recorded_id,
        "recorded_text": names.text(redraw.recorded_id),
        "is_decided": redraw.is_decided,
        "differs": redraw.differs,
        "reason": redraw.reason or None,
    }


def print_table(replayed: Replayed, console: Console) -> None:
    """Write what changed, a line for each token, and what it comes to."""
    from rich.text import Text

    from .columns import HEAD

    names, first = TracedNames(replayed.trace), replayed.first_difference
    console.print(Text(_headline(replayed), style=HEAD), soft_wrap=True)
    lines = _lines(replayed.redraws, names, console.width)
    split = len(lines) if first is None or first + 2 == len(lines) else first + 2
    for line in lines[:split]:
        console.print(line, soft_wrap=True)
    if split < len(lines):
        console.print(Text(_PARTING), soft_wrap=True)
        for line in lines[split:]:
            console.print(line, soft_wrap=True)
    for sentence in _sentences(replayed, names):
        console.print(Text(sentence), soft_wrap=True)


def _headline(replayed: Replayed) -> str:
    """Say what changed in the settings."""
    old, new = replayed.settings.recorded, replayed.settings.params
    changes = [
        f"{name} {written(getattr(old, name))} -> {written(getattr(new, name))}" for name in replayed.settings.changed
    ]
    count = len(replayed.trace.samples)
    which = f"sample {replayed.sample.index} of {count}: " if count > 1 else ""
    return which + (" · ".join(changes) or "the settings of the run, unchanged")


def _lines(redraws: Sequence[Redraw], names: TracedNames, width: int) -> list[RenderableType]:
    """Give the titles and a line for each token."""
    from .columns import Column, Row, lines_of

    columns = [
        Column("", 1, 0),
        Column("step", 4, 1),
        Column("recorded", 24, 0, is_right=False, least=8),
        Column("replayed", 24, 0, is_right=False, least=8),
        Column("", 11, 2, is_right=False),
    ]
    rows = []
    for redraw in redraws:
        mark, how, style = ("*", "differs", "bold") if redraw.differs else ("", "", "")
        if redraw.token_id is None:
            mark, how, style = "?", "not decided", "dim"
        replayed = "" if redraw.token_id is None else names.label(redraw.token_id)
        rows.append(Row([mark, str(redraw.index + 1), names.label(redraw.recorded_id), replayed, how], style))
    return lines_of(columns, rows, width)


def _sentences(replayed: Replayed, names: TracedNames) -> list[str]:
    """Say what a replay comes to."""
    if not replayed.redraws:
        return ["The sample has no tokens."]
    first, undecided = replayed.first_difference, replayed.undecided
    if first is None:
        left = len(replayed.redraws) - len(undecided)
        found = f"No difference at the {left:,} tokens that are decided." if undecided else "No difference."
        found = found if left else "Nothing can be told: no token is decided."
    else:
        redraw = replayed.redraws[first]
        assert redraw.token_id is not None
        was, would = names.label(redraw.recorded_id), names.label(redraw.token_id)
        found = f"The first difference is at token {first + 1}: {was} became {would}."
        if undecided and undecided[0] < first:
            found += f" It may come earlier: token {undecided[0] + 1} is not decided."
    return [found, *_undecided_sentences(replayed.redraws)]


def _undecided_sentences(redraws: Sequence[Redraw]) -> list[str]:
    """Say, for each reason, where tokens are not decided."""
    places: dict[str, list[int]] = {}
    for redraw in redraws:
        if not redraw.is_decided:
            places.setdefault(redraw.reason, []).append(redraw.index + 1)
    sentences = []
    for reason, steps in places.items():
        listed = ", ".join(map(str, steps[:_MOST_LISTED])) + (", ..." if len(steps) > _MOST_LISTED else "")
        hint = "; a run with a larger --trace-width keeps more" if _KEPT in reason else ""
        where = f"{len(steps):,} token{'s' * (len(steps) > 1)} ({listed})"
        sentences.append(f"Not decided at {where}: {reason}{hint}.")
    return sentences
