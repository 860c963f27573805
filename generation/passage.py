"""A text that is only read, never continued: its ids, and what stands before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .errors import ParameterError, PromptError
from .prompt import check_room, encode_raw

_GUARDS = ("\n", "a", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text as a model reads it: the ids before it, its own, and those that the tokenizer sets after it."""

    text: str
    before: tuple[int, ...]  # a start token, or a whole context
    ids: tuple[int, ...]
    after: tuple[int, ...] = ()


def read_alone(tokenizer: Any, text: str) -> Passage:
    """Encode a text as the beginning of all, as `encode_raw` does, and tell its own ids from the tokenizer's."""
    whole = encode_raw(tokenizer, text).ids
    own = _plain(tokenizer, text)
    for place in range(len(whole) - len(own) + 1):
        if whole[place : place + len(own)] == own:
            return Passage(text=text, before=whole[:place], ids=own, after=whole[place + len(own) :])
    return Passage(text=text, before=(), ids=whole)  # a start token changed how the text was cut


def read_after(tokenizer: Any, before: Sequence[int], text: str) -> Passage:
    """Encode a text on its own, to stand after other ids: as if the model had written it there.

    A tokenizer that writes a space before every text writes none here. Raises PromptError for a text without ids.
    """
    own = _inside(tokenizer, text) if text else ()
    check_room(len(own), None)
    return Passage(text=text, before=tuple(before), ids=own)


def context_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Give the ids of a given beginning, with the tokenizer's start token; an empty one has that token at most."""
    if not text:
        return read_alone(tokenizer, "a").before
    alone = read_alone(tokenizer, text)
    return alone.before + alone.ids


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Raise ParameterError for an id that has no logit: a tokenizer may know more tokens than the model."""
    if ids and max(ids) >= vocab_size:
        raise ParameterError("token ids", max(ids), f"below {vocab_size}, the width of the model's logits")


def check_fits(num_tokens: int, window: int | None) -> None:
    """Raise PromptError for a context and a continuation that a model cannot look at together."""
    if window is not None and num_tokens > window:
        raise PromptError(
            f"The context and what follows it have {num_tokens} tokens, but the model's window is {window}; "
            "use shorter ones."
        )


def _plain(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(int(token_id) for token_id in tokenizer.encode(text, add_special_tokens=False))


def _inside(tokenizer: Any, text: str) -> tuple[int, ...]:
    own = _plain(tokenizer, text)
    if _plain(tokenizer, "\na")[-1:] == _plain(tokenizer, "a"):  # nothing is written before a text
        return own
    for guard in _GUARDS:
        head, ids = _plain(tokenizer, guard), _plain(tokenizer, guard + text)
        if ids[: len(head)] == head:
            return ids[len(head) :]
    return own
