"""Where each token of a text stands: the characters it completes, the place where it begins, and its bytes."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .byte_detokenizers import BYTE_OF, BYTE_TOKEN, ByteLevelDecoder, ByteRunDecoder
from .detokenizer import incremental_decoder

_GUARDS = ("", "\n", "a", ".")  # texts before a text, of which one leaves the tokens of the text as they are


@dataclass(frozen=True, slots=True)
class Piece:
    """One token's share of a text. The texts of all pieces join to the whole, and so do the bytes."""

    text: str  # the characters that it completes: none for a token that ends inside a character
    start: int  # the character in which it begins, from 0
    raw: bytes


def cut(tokenizer: Any, text: str, ids: Sequence[int]) -> list[Piece]:
    """Give each token's share of a text; the ids are the text's own, without those that a tokenizer adds.

    Byte by byte where the tokens spell the text, as nearly all tokenizers' do; else by the tokenizer's offsets, where
    what it leaves out goes to the token after it; else by what each token adds to the decoded text.
    """
    spelt = _spelt(tokenizer, text, ids)
    if spelt is not None:
        return spelt
    spans = _offsets(tokenizer, text, ids) or _decoded(tokenizer, text, ids)
    return _shared_out(text, spans)


class Lines:
    """Turns places in a text into lines and columns, both from 1; a line ends after a newline, tabs count one."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(place + 1 for place, char in enumerate(text) if char == "\n")]

    def at(self, place: int) -> tuple[int, int]:
        """Give the line and the column of a character."""
        line = bisect_right(self._starts, place)
        return line, place - self._starts[line - 1] + 1


class Spelling:
    """Tells the bytes for which a vocabulary's tokens stand."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._added = {i: str(token) for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
        decoder = incremental_decoder(tokenizer, ())
        self._is_byte_level = isinstance(decoder, ByteLevelDecoder)
        self._has_byte_tokens = isinstance(decoder, ByteRunDecoder)

    def piece(self, token_id: int) -> str | None:
        """Give a token as the vocabulary stores it, or None for an id that the tokenizer lacks."""
        if not 0 <= token_id < len(self._tokenizer):
            return None
        piece = self._tokenizer.convert_ids_to_tokens(token_id)
        return piece if isinstance(piece, str) else None

    def raw(self, token_id: int) -> bytes:
        """Give a token's bytes, a SentencePiece mark as the space that it is; none for an id that is unknown."""
        if token_id in self._added:
            return self._added[token_id].encode()
        piece = self.piece(token_id)
        if piece is None:
            return b""
        if self._is_byte_level and all(char in BYTE_OF for char in piece):
            return bytes(BYTE_OF[char] for char in piece)
        if self._has_byte_tokens and (byte := BYTE_TOKEN.fullmatch(piece)):
            return bytes.fromhex(byte[1])
        return piece.replace("▁", " ").encode()


def _spelt(tokenizer: Any, text: str, ids: Sequence[int]) -> list[Piece] | None:
    """Give the pieces if the tokens' bytes are those of the text, but for the space that some write before it."""
    spelling = Spelling(tokenizer)
    parts = [spelling.raw(token_id) for token_id in ids]
    whole = text.encode()
    joined = b"".join(parts)
    if joined == b" " + whole and parts[0][:1] == b" ":
        parts[0] = parts[0][1:]
    elif joined != whole:
        return None
    pieces, num_chars = [], 0
    utf8 = codecs.getincrementaldecoder("utf-8")()
    for part in parts:
        completed = utf8.decode(part)
        pieces.append(Piece(completed, num_chars, part))
        num_chars += len(completed)
    return pieces


def _offsets(tokenizer: Any, text: str, ids: Sequence[int]) -> list[tuple[int, int]] | None:
    """Give where each token begins and ends, in characters, as a fast tokenizer tells it."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    for guard in _GUARDS:
        told = tokenizer(guard + text, add_special_tokens=False, return_offsets_mapping=True)
        if list(told["input_ids"])[-len(ids) :] == list(ids):
            spans = told["offset_mapping"][-len(ids) :]
            return [(max(0, start - len(guard)), max(0, end - len(guard))) for start, end in spans]
    return None


def _decoded(tokenizer: Any, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Give where each token begins and ends in the decoded text, which may be longer or shorter than the text."""
    decoder = incremental_decoder(tokenizer, ())
    ends = [0]
    for token_id in ids:
        ends.append(min(ends[-1] + len(decoder.push(token_id)), len(text)))
    return list(pairwise(ends))


def _shared_out(text: str, spans: Sequence[tuple[int, int]]) -> list[Piece]:
    """Part a whole text among tokens: one that shares its end with the next leaves that character to it."""
    starts = [*(start for start, _ in spans), len(text)]
    pieces, done = [], 0
    for i, (start, end) in enumerate(spans):
        is_last = i == len(spans) - 1
        end = len(text) if is_last else max(done, min(end, starts[i + 1]))
        part = text[done:end]
        pieces.append(Piece(part, min(start, max(len(text) - 1, 0)), part.encode()))
        done = end
    return pieces
