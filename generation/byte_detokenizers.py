"""Decoding by bytes: tokenizers whose tokens are pieces of UTF-8, all of them or the rare ones."""

from __future__ import annotations

import codecs
import re
from typing import Any

from .window_detokenizer import MARK, WindowDecoder

BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


class VisibleTokens:
    """The tokens that show in text: neither special nor past the tokenizer's end."""

    def __init__(self, tokenizer: Any) -> None:
        self._core = tokenizer.backend_tokenizer
        added = self._core.get_added_tokens_decoder().values()
        self._special = frozenset(token.content for token in added if token.special)

    def get(self, token_id: int) -> str | None:
        """Return a token as the vocabulary spells it, or None where it does not show."""
        token: str | None = self._core.id_to_token(token_id)
        return None if token in self._special else token


class ByteLevelDecoder:
    """Joins the bytes that the tokens stand for; at most three bytes are held."""

    waiting = ""

    def __init__(self, visible: VisibleTokens) -> None:
        self._visible = visible
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        token = self._visible.get(token_id)
        return "" if token is None else self._utf8.decode(_bytes_of(token))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


def _byte_alphabet() -> dict[str, int]:
    """Return the character that stands for each byte in byte-level BPE (Radford et al. 2019), turned round."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + rank): byte for rank, byte in enumerate(others)}


BYTE_OF = _byte_alphabet()


def _bytes_of(token: str) -> bytes:
    """Return a byte-level token's bytes; one with a character outside the alphabet, such as a space, is plain text."""
    try:
        return bytes(BYTE_OF[char] for char in token)
    except KeyError:
        return token.encode()


class ByteRunDecoder:
    """Holds a run of byte tokens to its end, as the library makes it text only if the whole of it is UTF-8.

    Otherwise each byte of the run becomes a mark, so a broken run need not be held.
    """

    def __init__(self, visible: VisibleTokens, window: WindowDecoder) -> None:
        self.waiting = ""
        self._visible = visible
        self._window = window
        self._run: list[int] = []
        self._is_broken = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")()

    def push(self, token_id: int) -> str:
        token = self._visible.get(token_id)
        if token is None:
            return ""
        byte = BYTE_TOKEN.fullmatch(token)
        return self._push_byte(token_id, byte[1]) if byte else self._end_run([token_id])

    def flush(self) -> str:
        return self._end_run([])

    def _push_byte(self, token_id: int, digits: str) -> str:
        if self._is_broken:
            return MARK
        self._run.append(token_id)
        try:
            self.waiting += self._utf8.decode(bytes.fromhex(digits))
        except UnicodeDecodeError:
            marks = MARK * len(self._run)
            self._run, self.waiting, self._is_broken = [], "", True
            self._window.skip(token_id)
            return marks
        return ""

    def _end_run(self, following: list[int]) -> str:
        run, self._run, self.waiting, self._is_broken = self._run, [], "", False
        self._utf8.reset()
        return self._window.extend([*run, *following])
