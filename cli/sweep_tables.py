"""The tables of `minigen sweep`, at any width: what each combination has come to, and how far the texts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from .columns import HEAD, WIDE, Column, cut
from .escaping import shown_in_cell
from .sweep_columns import CombinationTable, widest
from .sweep_texts import Board, Combination, Summary, SweptText

_NOTHING = "-"  # where there is no number, and where a text never parts
_LEAST_TAIL = 12  # columns from which a text's last words are shown


def result_table(combinations: Sequence[Combination], summaries: Sequence[Summary], width: int) -> CombinationTable:
    """Give one line for each combination: what it has come to."""
    ended = widest(map(_ending, summaries), 5)
    title = "parts at" if width >= WIDE else "parts"
    parts = Column(title, widest(map(_place, summaries), len(title)), 2)

    def columns(log_p: str, distinct: str) -> list[Column]:
        return [
            Column(log_p, max(7, len(log_p)), 1),
            Column(f"{distinct}-1", max(6, len(distinct) + 2), 4),
            Column(f"{distinct}-2", max(6, len(distinct) + 2), 3),
            Column("tokens", 6, 5),
            Column("ended", ended, 6, is_right=False),
            parts,
        ]

    rows = [
        [
            _decimals(one.logprob_per_token),
            _decimals(one.distinct_1),
            _decimals(one.distinct_2),
            _NOTHING if one.tokens_per_text is None else f"{one.tokens_per_text:.1f}",
            _ending(one),
            "first" if i == 0 else _place(one),
        ]
        for i, one in enumerate(summaries)
    ]
    forms = [columns("log p per token", "distinct"), columns("log p", "dist")]
    return CombinationTable(combinations, forms, rows, width)


def progress_lines(board: Board, summary: str, width: int, max_rows: int) -> list[RenderableType]:
    """Give how far each combination is, and the last words of the text that it is at, under a line of `summary`.

    max_rows: lines in all. Combinations that are being written go before others.
    """
    columns = [
        Column("texts", widest((_count(texts) for texts in board.texts), 5), 1),
        Column("tokens", 6, 2),
        Column("log p", 7, 3),
    ]
    kept = _most_telling(board, max(max_rows - 2, 1))
    rows = []
    for i in kept:
        texts = board.texts[i]
        num_tokens = sum(len(text.token_ids) for text in texts)
        mean = sum(text.logprob for text in texts) / num_tokens if num_tokens else None
        rows.append([_count(texts), str(num_tokens), _decimals(mean)])
    title, *lines = CombinationTable([board.combinations[i] for i in kept], [columns], rows, width).lines
    tails = [_newest(board.texts[i]).text for i in kept]
    head = Text(cut(summary, width), style=HEAD, no_wrap=True)
    return [head, title, *_with_tails(lines, tails, width)][:max_rows]


def _with_tails(lines: Sequence[RenderableType], tails: Sequence[str], width: int) -> list[RenderableType]:
    """Write the last words of each text behind its line, where there is room."""
    used = max((cell_len(str(line)) for line in lines), default=0) + 2
    if width - used < _LEAST_TAIL:
        return list(lines)
    return [
        Text(f"{line!s:<{used}}{tail_of(text, width - used)}", no_wrap=True)
        for line, text in zip(lines, tails, strict=True)
    ]


def tail_of(text: str, width: int) -> str:
    """Give the end of a text on one line of at most `width` columns, with a mark where something is missing."""
    shown = shown_in_cell(text[-width:])
    is_cut, used, start = len(text) > width, 0, len(shown)
    while start and used + cell_len(shown[start - 1]) <= width:
        start -= 1
        used += cell_len(shown[start])
    if not start and not is_cut:
        return shown
    while used > width - 1:
        used -= cell_len(shown[start])
        start += 1
    return f"…{shown[start:]}"


def _most_telling(board: Board, room: int) -> list[int]:
    """Give the combinations to show, in their order: those that are being written first, as many as fit."""
    ranked = sorted(range(len(board.texts)), key=lambda i: not any(map(_is_running, board.texts[i])))
    return sorted(ranked[:room])


def _is_running(text: SweptText) -> bool:
    return bool(text.token_ids) and text.finish_reason is None


def _newest(texts: Sequence[SweptText]) -> SweptText:
    """Give the first text that is being written, else the last that has ended."""
    begun = [text for text in texts if text.token_ids]
    return next((text for text in texts if _is_running(text)), begun[-1] if begun else texts[0])


def _count(texts: Sequence[SweptText]) -> str:
    return f"{sum(text.finish_reason is not None for text in texts)}/{len(texts)}"


def _ending(one: Summary) -> str:
    """Say how texts ended: `length`, or `3 stop, 1 length` where not all ended so."""
    reasons: Mapping[str, int] = one.finish_reasons
    if len(reasons) <= 1:
        return next(iter(reasons), _NOTHING)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda each: -each[1]))


def _place(one: Summary) -> str:
    """Say where texts first part, and how many of them do where not all do: `13 (2/4)`."""
    first = one.first_parting
    if first is None:
        return _NOTHING
    number = str(first.index + 1)
    return number if len(one.partings) == one.num_compared else f"{number} ({len(one.partings)}/{one.num_compared})"


def _decimals(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.4f}"
