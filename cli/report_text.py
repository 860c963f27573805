"""A text shared out to its tokens: what each one wrote, though some of it came to light only with a later one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .escaping import shown_in_cell
from .token_names import unnamed

TEXT: Final = 0  # the token wrote its piece
SPECIAL: Final = 1  # it steers the model and is not text
SILENT: Final = 2  # what it wrote stands with a later token, as a part of a character does
CUT: Final = 3  # it, or its end, is not in the text: a stop string took it
_BROKEN: Final = "\ufffd"
_SILENT_MARK: Final = "▫"


class Piece(NamedTuple):
    """What a token wrote, and one line that stands for what it did not."""

    text: str
    kind: int = TEXT
    mark: str = ""


def pieces(tokens: Sequence[Mapping[str, Any]], text: str) -> tuple[list[Piece], str]:
    """Give each token's piece of a text, and the rest that no token wrote; joined they are the text.

    tokens: as in a trace; of each, `text` is what it made safe to show, `token` its own text.
    """
    found = _by_own_texts(tokens, text)
    if found is None:  # tokens that read otherwise alone than together
        found = [_special(token) if token["special"] else _piece(token["text"]) for token in tokens]
    joined = "".join(piece.text for piece in found)
    if not text.startswith(joined):  # a file that contradicts itself
        return [Piece("", SILENT, _SILENT_MARK) for _ in tokens], text
    return found, text[len(joined) :]


def _by_own_texts(tokens: Sequence[Mapping[str, Any]], text: str) -> list[Piece] | None:
    """Follow the tokens' own texts through the text; None where they lose it."""
    found: list[Piece] = []
    at = num_released = 0
    for token in tokens:
        num_released += len(token["text"])
        if token["special"]:
            found.append(_special(token))
            continue
        own = token["token"] or ""
        if at == 0 and own.startswith(" ") and not text.startswith(own):
            own = own[1:]  # the space before a first word, which an answer does not show
        if text.startswith(own, at):
            found.append(_piece(own))
        elif _BROKEN in own:
            found.append(_piece(text[at : max(at, num_released)]))
        elif own.startswith(text[at:]):
            found.append(Piece(text[at:], CUT, shown_in_cell(own[len(text) - at :])))
        else:
            return None
        at += len(found[-1].text)
    return found if at >= num_released else None


def _piece(text: str) -> Piece:
    return Piece(text) if text else Piece("", SILENT, _SILENT_MARK)


def _special(token: Mapping[str, Any]) -> Piece:
    return Piece("", SPECIAL, shown_in_cell(token["token"] or unnamed(token["id"])))
