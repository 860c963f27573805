"""A prompt's tokens one by one: their share of it, and whether the user, the template or the tokenizer wrote them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .chat import Messages, render
from .passage import read_alone
from .pieces import Piece, Spelling, cut
from .prompt import encode_chat

TEXT, TEMPLATE, TOKENIZER, MIXED = "text", "template", "tokenizer", "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptToken:
    """One token of a prompt."""

    token_id: int
    piece: str | None  # as the vocabulary stores it; None for an id that the tokenizer lacks
    text: str  # the characters that it completes
    raw: bytes
    is_special: bool
    origin: str | None  # "text", "tokenizer"; in a chat "template", a message's role, "mixed"; None: it cannot be told


def raw_tokens(tokenizer: Any, text: str) -> list[PromptToken]:
    """Cut a text as raw mode does: special tokens are parsed, and the tokenizer may add its own around it."""
    passage = read_alone(tokenizer, text)
    pieces = cut(tokenizer, text, passage.ids)
    added = Piece("", 0, b"")
    return [
        *_described(tokenizer, passage.before, [added] * len(passage.before), [TOKENIZER] * len(passage.before)),
        *_described(tokenizer, passage.ids, pieces, [TEXT] * len(pieces)),
        *_described(tokenizer, passage.after, [added] * len(passage.after), [TOKENIZER] * len(passage.after)),
    ]


def chat_tokens(tokenizer: Any, messages: Messages, template: str | None = None) -> list[PromptToken]:
    """Cut messages in a chat template as chat mode does. Raises PromptError for a template that cannot be used."""
    ids = encode_chat(tokenizer, messages, template=template).ids
    text = render(tokenizer, messages, template)
    pieces = cut(tokenizer, text, ids)
    owners = _owners(tokenizer, messages, template, text)
    names: list[str | None] = [None] * len(ids)
    if owners is not None:
        ends = [*(piece.start for piece in pieces[1:]), len(text)]
        shares = (owners[piece.start : max(end, piece.start + 1)] for piece, end in zip(pieces, ends, strict=True))
        names = [share[0] if len(set(share)) == 1 else MIXED for share in shares]
    return _described(tokenizer, ids, pieces, names)


def _described(
    tokenizer: Any, ids: Sequence[int], pieces: Sequence[Piece], origins: Sequence[str | None]
) -> list[PromptToken]:
    spelling = Spelling(tokenizer)
    special = {i for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items() if token.special}
    special |= set(getattr(tokenizer, "all_special_ids", ()))
    return [
        PromptToken(
            token_id=token_id,
            piece=spelling.piece(token_id),
            text=piece.text,
            raw=piece.raw,
            is_special=token_id in special,
            origin=origin,
        )
        for token_id, piece, origin in zip(ids, pieces, origins, strict=True)
    ]


def _owners(tokenizer: Any, messages: Messages, template: str | None, text: str) -> list[str] | None:
    """Give for each character of the rendered prompt who wrote it, or None where a template changes what is in it.

    The messages are rendered as long numbers, which no template alters, and then put back.
    """
    bodies: dict[str, tuple[str, str]] = {}
    masked = []
    for message in messages:
        body = message["content"].strip()
        number = str(10**39 + secrets.randbelow(9 * 10**39))
        if body:
            bodies[number] = (message["role"], body)
        masked.append({**message, "content": message["content"].replace(body, number, 1) if body else ""})
    skeleton = render(tokenizer, masked, template)
    owners: list[str] = []
    written: list[str] = []
    for part in re.split(f"({'|'.join(bodies)})", skeleton) if bodies else [skeleton]:
        role, body = bodies.get(part, (TEMPLATE, part))
        owners += [role] * len(body)
        written.append(body)
    return owners if "".join(written) == text else None
