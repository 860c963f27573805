"""Decoding by a window: any tokenizer that has `decode`, at a flat cost per token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MARK = "\ufffd"  # what a decoder writes for bytes that are not UTF-8
MAX_PENDING = 3  # bytes that an unfinished UTF-8 character can have
KEPT = 12  # ids that a window keeps: MAX_PENDING marks for MAX_PENDING bytes each, and one character before them


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of ids as the library writes it: no special tokens, no clean-up of spaces."""
    if not ids:
        return ""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


class WindowDecoder:
    """Decodes the last few ids again with each new one, and shows what that adds.

    The older ids of the window keep the library's rule for the beginning of a text (no leading space) from firing in
    the middle. Marks at the end are held, as they may be a character whose last bytes are still to come.
    """

    waiting = ""

    def __init__(self, tokenizer: Any, anchor: Sequence[int], *, held_marks: int) -> None:
        self._tokenizer = tokenizer
        self._held_marks = held_marks
        self._ids = list(anchor)
        self._text = decode(tokenizer, anchor)
        self._shown = len(self._text)  # characters of the window's text
        self._num_spoilt = 0  # ids since the shown text was last a beginning of the window's

    def push(self, token_id: int) -> str:
        return self.extend([token_id])

    def extend(self, ids: Sequence[int]) -> str:
        """Take in several ids at once."""
        self._ids += ids
        shown, self._text = self._text[: self._shown], decode(self._tokenizer, self._ids)
        self._num_spoilt = 0 if self._text.startswith(shown) else self._num_spoilt + 1
        if 0 < self._num_spoilt <= MAX_PENDING:  # an unfinished character spoils shown text: it heals with the next ids
            self._text = shown
            return ""
        num_marks = len(self._text) - len(self._text.rstrip(MARK))
        piece = self._show(len(self._text) - min(num_marks, self._held_marks))
        if len(self._ids) > 2 * KEPT:
            self._forget_oldest()
        return piece

    def skip(self, token_id: int) -> None:
        """Take in an id whose text was shown in another way."""
        self.extend([token_id])
        self._show(len(self._text))

    def flush(self) -> str:
        self._text = decode(self._tokenizer, self._ids)
        return self._show(len(self._text))

    def _show(self, end: int) -> str:
        piece = self._text[self._shown : end]
        self._shown = max(self._shown, end)
        return piece

    def _forget_oldest(self) -> None:
        """Keep a tail of the ids that gives a tail of the text, so begins with a whole character."""
        for num_kept in range(KEPT, KEPT + MAX_PENDING + 1):
            kept = self._ids[-num_kept:]
            text = decode(self._tokenizer, kept)
            if text and self._text.endswith(text):
                break
        else:
            if len(self._ids) < 4 * KEPT:
                return
            kept = self._ids[:KEPT] + self._ids[-KEPT:]  # the first ids, as the last may have no text at all
            text = decode(self._tokenizer, kept)
        self._shown = max(0, len(text) - (len(self._text) - self._shown))
        self._ids, self._text = kept, text
