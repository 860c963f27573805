"""What a sweep has come to, as people read it: the texts where they are wanted, the table, and where texts part."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Protocol

from .columns import HEAD, cut, filled
from .escaping import quoted, shown
from .sweep_texts import Board, Parting, Summary, SweptText

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SHARED = "dim"  # what a text has in common with that of the first combination
_MOST_LISTED = 8  # seeds in a line
_LEAST_WRAPPED = 14  # columns from which words are wrapped rather than cut
_NUM_BEFORE = 24  # characters of the text before a parting
_KEPT_SPACE = "\0"  # where no line is broken
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
TextOf = Callable[[Sequence[int]], str]  # the text of several tokens


class Names(Protocol):
    """What a parting asks about tokens."""

    def label(self, token_id: int) -> str: ...


def print_results(
    board: Board,
    summaries: Sequence[Summary],
    console: Console,
    names: Names,
    text_of: TextOf,
    *,
    speed: Sequence[str] = (),
) -> None:
    """Write the table, a line for each combination that parts from the first, and which seeds there were.

    speed: what is said of it besides.
    """
    from rich.console import Group
    from rich.text import Text

    from .sweep_tables import result_table

    width = console.width
    table = result_table(board.combinations, summaries, width)
    console.print(Group(*table.lines), soft_wrap=True)
    named = [] if table.names_values else [line for each in board.combinations for line in _wrapped(each.name, width)]
    told = [
        line
        for each, one in zip(board.combinations, summaries, strict=True)
        if one.first_parting is not None
        for line in _wrapped(f"{each.index + 1} {parting_text(one.first_parting, names, text_of)}", width)
    ]
    for lines in (named, told):
        if lines:
            console.print(Group(Text(), *(Text(line, no_wrap=True) for line in lines)), soft_wrap=True)
    parts = [Text(part, no_wrap=True) for part in [*totals(board), *speed]]
    console.print(Group(Text(), *filled(parts, width)), soft_wrap=True)


def parting_text(parting: Parting, names: Names, text_of: TextOf) -> str:
    """Say where a text parts: `parts at token 13 with seed 4: " is" became " was", after "… France"`."""
    was, now = names.label(parting.first_token_id), names.label(parting.token_id)
    before = text_of(parting.before)
    end = quoted(("…" if len(before) > _NUM_BEFORE else "") + before[-_NUM_BEFORE:])
    after = f", after {end}" if before else ""
    return f"parts at token {parting.index + 1} with seed {parting.seed}: {was} became {now}{after}"


def totals(board: Board) -> list[str]:
    """Say what there is in all, and which seeds there were: `24 texts`, `1,152 tokens`, `seeds 3 to 6`."""
    there = [text for text in board.in_turn if text.is_there]
    num_tokens = sum(len(text.token_ids) for text in there)
    texts = f"{len(there):,} text{'s' * (len(there) != 1)}"
    return [texts, f"{num_tokens:,} token{'s' * (num_tokens != 1)}", seeds_text(board.seeds)]


def seeds_text(seeds: Sequence[int]) -> str:
    """Name seeds: `seed 3`, `seeds 3 to 6`, or `seeds 1, 5, 9`."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    listed = ", ".join(map(str, seeds[:_MOST_LISTED]))
    return f"seeds {listed}" + (f" … ({len(seeds)})" if len(seeds) > _MOST_LISTED else "")


def print_texts(board: Board, summaries: Sequence[Summary], console: Console, text_of: TextOf) -> None:
    """Write every text, under its combination and its seed; what it shares with the first one's is dimmed."""
    from rich.text import Text

    for each, texts, one in zip(board.combinations, board.texts, summaries, strict=True):
        partings = {parting.seed: parting for parting in one.partings}
        console.print(Text(shown(each.name), style=HEAD), soft_wrap=True)
        for text in texts:
            if text.is_there:
                is_single = len(texts) < len(board.seeds)
                parting = partings.get(text.seed)
                console.print(
                    Text(cut(_heading(text, parting, is_single), console.width), no_wrap=True), soft_wrap=True
                )
                end = "" if text.text.endswith("\n") else "\n"
                console.print(_body(text, parting, each.index == 0, text_of), soft_wrap=True, end=end)
        console.print()


def _heading(text: SweptText, parting: Parting | None, is_single: bool) -> str:
    """Say which text this is: `seed 4 · 48 tokens · length · parts at token 13`."""
    num_tokens = len(text.token_ids)
    parts = ["any seed" if is_single else f"seed {text.seed}", f"{num_tokens} token{'s' * (num_tokens != 1)}"]
    parts += [str(text.finish_reason)] + ([f"parts at token {parting.index + 1}"] if parting else [])
    return f"-- {' · '.join(parts)}"


def _body(text: SweptText, parting: Parting | None, is_first: bool, text_of: TextOf) -> Text:
    """Give a text with the beginning that it shares dimmed, as far as that ends between characters."""
    from rich.text import Text

    before = "" if is_first else text.text if parting is None else text_of(parting.before)
    num_shared = len(before) if text.text.startswith(before) else 0
    return Text.assemble((shown(text.text[:num_shared]), SHARED), shown(text.text[num_shared:]))


def _wrapped(text: str, width: int) -> list[str]:
    """Break a line between words, the later lines indented; what stands in quotes stays together."""
    if width < _LEAST_WRAPPED:
        return [cut(text, width)]
    held = _QUOTED.sub(lambda found: found[0].replace(" ", _KEPT_SPACE), text)
    lines = wrap(held, width, subsequent_indent="  ", break_on_hyphens=False)
    return [cut(line.replace(_KEPT_SPACE, " "), width) for line in lines]
