"""Prompts: raw text or chat messages to ids, and a text cut so that it fits the model's window."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .chat import encode_messages
from .errors import PromptError

Side = Literal["head", "tail"]  # which end of a text is dropped


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads, and what the shown text continues."""

    ids: tuple[int, ...]
    context_ids: tuple[int, ...]  # a raw prompt's ids; () in a chat, where the answer is a text of its own


@dataclass(frozen=True, slots=True)
class Cut:
    """How many tokens of the user's text were kept and dropped; of a huge text, `dropped` is an estimate."""

    kept: int
    dropped: int


def encode_raw(tokenizer: Any, text: str) -> Prompt:
    """Return the ids of a text to continue, with the tokenizer's own start token and special tokens parsed.

    Raises PromptError for an empty text, even where a start token alone could begin one, and for one without ids.
    """
    ids = _ids_of(tokenizer, text) if text else ()
    check_room(len(ids), None)
    return Prompt(ids, context_ids=ids)


def encode_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]], *, template: str | None = None) -> Prompt:
    """Return the ids of messages in the model's chat template, or in `template`, up to where the answer begins.

    Text in the messages never becomes a control token. Raises PromptError for a template that cannot be used.
    """
    for message in messages:
        _check_message(message)
    ids = tuple(encode_messages(tokenizer, messages, template))
    check_room(len(ids), None)
    return Prompt(ids, context_ids=())


def check_room(num_tokens: int, window: int | None) -> None:
    """Raise PromptError for a prompt without tokens, or one that leaves no room for a new token in the window."""
    if num_tokens == 0:
        raise PromptError("The prompt is empty.")
    if window is not None and num_tokens >= window:
        raise PromptError(
            f"The prompt has {num_tokens} tokens, but the model's window of {window} must also hold a new one; "
            f"use at most {window - 1} tokens, or --truncate head or tail."
        )


def fit(
    encode: Callable[[str], Prompt],
    text: str,
    *,
    window: int | None,
    max_new_tokens: int,
    truncate: Side | None,
    tokenizer: Any,
) -> tuple[Prompt, Cut | None]:
    """Return the prompt that `encode` makes of a text, cut where `truncate` asks for it and the window needs it.

    "head" drops the text's beginning and "tail" its end, so that min(max_new_tokens, window // 4) new tokens fit. A
    prompt that fits is never cut.
    Raises PromptError, with both numbers, for a prompt that does not fit.
    """
    if window is None:
        return encode(text), None
    most_bytes = _most_bytes(tokenizer, window)
    is_huge = len(text) > most_bytes or _num_bytes(text) > most_bytes
    if truncate is None:
        if is_huge:  # known before the slow work of encoding it
            raise PromptError(
                f"The prompt has {_num_bytes(text)} bytes, but the model's window of {window} tokens holds at most "
                f"{most_bytes}; use a shorter one, or --truncate head or tail."
            )
        prompt = encode(text)
        check_room(len(prompt.ids), window)
        return prompt, None
    start = _keep(text, int(most_bytes), truncate) if is_huge else text
    prompt = encode(start)
    if len(prompt.ids) < window and not is_huge:
        return prompt, None
    room = window - max(1, min(max_new_tokens, window // 4))
    prompt, kept_text = _shorten(encode, start, prompt, room=room, truncate=truncate, tokenizer=tokenizer)
    kept, encoded = _num_tokens(tokenizer, kept_text), _num_tokens(tokenizer, start)
    return prompt, Cut(kept, dropped=max(0, encoded * len(text) // len(start) - kept))


def _shorten(
    encode: Callable[[str], Prompt], text: str, prompt: Prompt, *, room: int, truncate: Side, tokenizer: Any
) -> tuple[Prompt, str]:
    """Drop tokens of the text, as many as there are too many, and encode again until the prompt fits the room."""
    spans = _token_spans(tokenizer, text)
    kept, num_dropped = text, 0
    while (num_excess := len(prompt.ids) - room) > 0:
        num_dropped += num_excess
        if num_dropped < len(spans):
            kept = text[spans[num_dropped][0] :] if truncate == "head" else text[: spans[-1 - num_dropped][1]]
        if num_dropped >= len(spans) or not kept:
            raise PromptError(
                f"Nothing of the prompt fits: what stands around it leaves no room among the {room} tokens "
                "that the model's window has for a prompt."
            )
        prompt = encode(kept)
    return prompt, kept


def _token_spans(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Return where each token of a text begins and ends, in characters; single characters if it cannot be told."""
    if not getattr(tokenizer, "is_fast", False):
        return [(place, place + 1) for place in range(len(text))]
    return list(tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"])


def _keep(text: str, num_chars: int, truncate: Side) -> str:
    return text[-num_chars:] if truncate == "head" else text[:num_chars]


def _most_bytes(tokenizer: Any, window: int) -> float:
    """Return more bytes than any text has that fits the window: the longest token, as often as there is room."""
    if not hasattr(tokenizer, "get_vocab"):
        return math.inf
    return window * max(len(token.encode()) for token in tokenizer.get_vocab())


def _num_bytes(text: str) -> int:
    return len(text.encode())


def _num_tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False))


def _ids_of(tokenizer: Any, text: str) -> tuple[int, ...]:
    _check_text(text)
    return tuple(int(token_id) for token_id in tokenizer.encode(text))


def _check_message(message: Any) -> None:
    """Raise PromptError for what is not a message of two texts."""
    given = [message.get(name) for name in ("role", "content")] if isinstance(message, Mapping) else [None]
    if not all(isinstance(text, str) for text in given):
        raise PromptError(f"A message must be a role and a content, both texts, not {message!r}.")
    _check_text(message["content"])


def _check_text(text: str) -> None:
    """Raise PromptError for a text with half characters (surrogates), which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"The prompt is not valid text: character {error.start} is half of one ({text[error.start]!r})."
        ) from error
