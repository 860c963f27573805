"""Which way of decoding is exact for a tokenizer, so that the pieces of a text joined equal the decode of the whole.

Three kinds of tokenizers need three ways: byte-level ones (`ByteLevelDecoder`), those that write rare characters as
byte tokens such as `<0xE4>` (`ByteRunDecoder`), and all others (`WindowDecoder`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from .byte_detokenizers import BYTE_TOKEN, ByteLevelDecoder, ByteRunDecoder, VisibleTokens
from .window_detokenizer import KEPT, MAX_PENDING, WindowDecoder, decode


class IncrementalDecoder(Protocol):
    """Takes ids one by one and gives the text that no later id can change."""

    @property
    def waiting(self) -> str:
        """Complete text that is held back only because a later id could still spoil it."""
        ...

    def push(self, token_id: int) -> str:
        """Return the text that this id settles."""
        ...

    def flush(self) -> str:
        """Return the text that is still held, as no id follows."""
        ...


def incremental_decoder(tokenizer: Any, context_ids: Sequence[int]) -> IncrementalDecoder:
    """Return the decoder that is exact for this kind of tokenizer, for text that continues `context_ids`."""
    kinds = _decoder_kinds(tokenizer)
    anchor = anchor_ids(tokenizer, context_ids)
    if kinds == ["ByteLevel"]:
        return ByteLevelDecoder(VisibleTokens(tokenizer))
    if "ByteFallback" in kinds:
        return ByteRunDecoder(VisibleTokens(tokenizer), WindowDecoder(tokenizer, anchor, held_marks=0))
    return WindowDecoder(tokenizer, anchor, held_marks=MAX_PENDING)


def anchor_ids(tokenizer: Any, context_ids: Sequence[int]) -> list[int]:
    """Return the few last ids of a context that decide how the text after it begins, as with a leading space."""
    kinds = _decoder_kinds(tokenizer)
    if kinds == ["ByteLevel"]:
        return []  # bytes join without a rule
    ids = list(context_ids)
    if "ByteFallback" in kinds:  # a run of byte tokens must not go on from the context into the new text
        visible = VisibleTokens(tokenizer)
        while ids and ((token := visible.get(ids[-1])) is None or BYTE_TOKEN.fullmatch(token)):
            ids.pop()
    num_kept = KEPT
    while num_kept < len(ids) and not decode(tokenizer, ids[-num_kept:]):
        num_kept *= 2
    return ids[-num_kept:]


def _decoder_kinds(tokenizer: Any) -> list[str]:
    """Return the types in the chain of decoders of a fast tokenizer, and nothing for any other."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None:
        return []
    if type(decoder).__name__ != "Sequence":
        return [type(decoder).__name__]
    return [step["type"] for step in json.loads(decoder.__getstate__())["decoders"]]
