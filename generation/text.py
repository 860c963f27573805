"""The text of a sequence while its ids come in: whole characters, right spaces, and no stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .detokenizer import anchor_ids, incremental_decoder
from .stops import StopStrings
from .window_detokenizer import decode


class TextStream:
    """Turns ids into pieces of text that joined equal `decode_new`, up to a stop string.

    `context_ids` are what the text continues (a raw prompt's ids); they are never shown and never count for a stop.
    """

    def __init__(self, tokenizer: Any, context_ids: Sequence[int] = (), stops: Sequence[str] = ()) -> None:
        self._decoder = incremental_decoder(tokenizer, context_ids)
        self._stops = StopStrings(stops)
        self._is_broken = False  # the tokenizer failed, or is at work: it is not asked again

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended the text; it and all after it are never shown."""
        return self._stops.matched

    def push(self, token_id: int) -> str:
        """Return the text that this token made safe to show."""
        if self.stopped_by is not None:
            return ""
        self._is_broken = True
        piece = self._stops.push(self._decoder.push(token_id))
        if self._stops.would_end_at(self._decoder.waiting):  # the end of the text: nothing can spoil it any more
            piece += self._stops.push(self._decoder.flush())
        self._is_broken = False
        return piece

    def flush(self) -> str:
        """Return the text that was held, once, however the sequence ended; it may still complete a stop string."""
        if self.stopped_by is not None:
            return ""
        if self._is_broken:
            return self._stops.flush()
        self._is_broken = True
        text = self._stops.push(self._decoder.flush()) + self._stops.flush()
        self._is_broken = False
        return text


def decode_new(tokenizer: Any, context_ids: Sequence[int], new_ids: Sequence[int]) -> str:
    """Return the text that new ids add after a context, or their own text where the context is empty."""
    anchor = anchor_ids(tokenizer, context_ids)
    return decode(tokenizer, [*anchor, *new_ids])[len(decode(tokenizer, anchor)) :]
