"""What a token is called: its text, the name of a special one, the bytes of half a character, or its bare id."""

from __future__ import annotations

from typing import Any

from ..generation.byte_detokenizers import BYTE_OF
from .escaping import quoted, shown_in_cell

_BROKEN = "\ufffd"


def named(text: str, *, is_special: bool) -> str:
    """Write a token on one line: its text in quotes, or a special one's name."""
    return f"special {shown_in_cell(text)}" if is_special else quoted(text)


def unnamed(token_id: int) -> str:
    """Write a token whose text is not known."""
    return f"<id {token_id}>"


class TokenNames:
    """Names tokens of a transformers tokenizer, each one looked up once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._size = len(tokenizer)
        self._texts: dict[int, str] = {}
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self._special = {token_id for token_id, token in added.items() if token.special}
        self._special |= set(getattr(tokenizer, "all_special_ids", ()))

    def is_special(self, token_id: int) -> bool:
        """Whether a token steers the model rather than being text."""
        return token_id in self._special

    def text(self, token_id: int) -> str:
        """Give a token's own text; a special token's name; `<id 300>` for an id that the tokenizer lacks."""
        if token_id not in self._texts:
            self._texts[token_id] = self._looked_up(token_id)
        return self._texts[token_id]

    def label(self, token_id: int) -> str:
        """Give a token on one line: text in quotes, with what cannot be seen made visible."""
        piece = self._piece(token_id)
        if piece is None:
            return self.text(token_id)
        text, is_special = self.text(token_id), self.is_special(token_id)
        return f'"{_bytes_shown(piece)}"' if _BROKEN in text and not is_special else named(text, is_special=is_special)

    def _piece(self, token_id: int) -> str | None:
        if not 0 <= token_id < self._size:
            return None
        piece = self._tokenizer.convert_ids_to_tokens(token_id)
        return piece if isinstance(piece, str) else None

    def _looked_up(self, token_id: int) -> str:
        piece = self._piece(token_id)
        if piece is None:
            return unnamed(token_id)
        if self.is_special(token_id):
            return piece
        text = str(self._tokenizer.decode([token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False))
        is_stripped = piece.startswith("▁") and not text.startswith(" ")  # SentencePiece: a word with its space
        return f" {text}" if is_stripped else text


def _bytes_shown(piece: str) -> str:
    """Write a token that is a part of a character by its bytes, where its vocabulary name tells them."""
    if all(char in BYTE_OF for char in piece) and not piece.startswith("<0x"):
        return "".join(f"\\x{BYTE_OF[char]:02x}" for char in piece)
    return shown_in_cell(piece)
