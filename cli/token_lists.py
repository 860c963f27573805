"""A prompt's tokens as a table at any width, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from ..generation.origins import TEMPLATE, TOKENIZER, PromptToken
from .columns import Column, Row, filled, lines_of
from .escaping import quoted, shown_in_cell
from .score_tables import spaced
from .tables import TOKEN
from .token_names import named

SCHEMA = 1
_OWN_STYLE = {TEMPLATE: "dim", TOKENIZER: "dim"}  # of what the user did not write


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many tokens a prompt has, and how they compare with what the user gave."""

    tokens: int
    special_tokens: int
    text_tokens: int  # those that hold something of what the user gave
    bytes: int  # of TEXT, in UTF-8
    words: int  # of TEXT, separated by white space

    @property
    def tokens_per_byte(self) -> float | None:
        """The text's tokens over its bytes."""
        return self.text_tokens / self.bytes if self.bytes else None

    @property
    def tokens_per_word(self) -> float | None:
        """The text's tokens over its words."""
        return self.text_tokens / self.words if self.words else None


def count(found: Sequence[PromptToken], text: str) -> Counts:
    """Count the tokens of a prompt whose TEXT is `text`."""
    return Counts(
        tokens=len(found),
        special_tokens=sum(one.is_special for one in found),
        text_tokens=sum(one.origin in ("text", "user", "mixed") for one in found),
        bytes=len(text.encode()),
        words=len(text.split()),
    )


def tokens_document(
    found: Sequence[PromptToken], *, name: str, text: str, mode: str, system: str | None
) -> dict[str, Any]:
    """Give the document; `text_schemas.py` says what stands in it."""
    counts = count(found, text)
    return {
        "schema": SCHEMA,
        "model": name,
        "mode": mode,
        "system": system,
        "text": text,
        "tokens": [
            {
                "index": place,
                "id": one.token_id,
                "piece": one.piece,
                "text": one.text,
                "bytes": one.raw.hex(),
                "special": one.is_special,
                "origin": one.origin,
            }
            for place, one in enumerate(found)
        ],
        "counts": {
            "tokens": counts.tokens,
            "special_tokens": counts.special_tokens,
            "text_tokens": counts.text_tokens,
            "bytes": counts.bytes,
            "words": counts.words,
            "tokens_per_byte": counts.tokens_per_byte,
            "tokens_per_word": counts.tokens_per_word,
        },
    }


def tokens_table(found: Sequence[PromptToken], counts: Counts, width: int | None) -> Group:
    """Give one line for each token, then the counts. width: None cuts nothing, as a file or a pipe wants it."""
    is_marked = any(one.is_special or one.origin != "text" for one in found)
    columns = [
        Column("", len(str(len(found))), 4),
        Column("id", 6, 2),
        Column("piece", 16, 3, is_right=False),
        TOKEN._replace(title="text"),
        *([Column("from", 9, 0, is_right=False)] if is_marked else []),
        Column("bytes", 14, 1, is_right=False),
    ]
    rows = [_row(place, one, is_marked) for place, one in enumerate(found, start=1)]
    if width is None:
        cells = zip(*(row.cells for row in rows), strict=True)
        most = [max(cell_len(shown_in_cell(cell)) for cell in column) for column in cells]
        columns = [
            each._replace(width=max(each.width, wide), least=0) for each, wide in zip(columns, most, strict=True)
        ]
        width = sum(each.width + 2 for each in columns)
    return spaced([Group(*lines_of(columns, rows, width))], _count_lines(counts, width))


def _row(number: int, one: PromptToken, is_marked: bool) -> Row:
    origin = one.origin or "unknown"
    cells = [
        str(number),
        str(one.token_id),
        "-" if one.piece is None else one.piece,
        named(one.piece or one.text, is_special=True) if one.is_special else quoted(one.text) if one.text else "-",
        *([origin] if is_marked else []),
        one.raw.hex(" "),
    ]
    return Row(cells, _OWN_STYLE.get(origin, ""))


def _count_lines(counts: Counts, width: int) -> list[Text]:
    special = f" ({counts.special_tokens} special)" if counts.special_tokens else ""
    own = f"{counts.text_tokens} of the text" if counts.text_tokens != counts.tokens else ""
    parts = [
        f"{counts.tokens} tokens{special}",
        own,
        f"{counts.bytes} bytes",
        "" if counts.tokens_per_byte is None else f"{counts.tokens_per_byte:.3f} tokens per byte",
        "" if counts.tokens_per_word is None else f"{counts.tokens_per_word:.2f} tokens per word",
    ]
    return filled([Text(part, no_wrap=True) for part in parts if part], width)
