"""Chat messages to ids: the model's template, and user text that cannot forge a turn."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import PromptError

Messages = Sequence[Mapping[str, str]]
# What Python itself raises inside a template: wrong types, missing keys, too deep, too large, ...
_PYTHON_ERRORS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, SyntaxError, ImportError)
_MARKER = re.compile(r"<\|.+\|>")  # some templates put it together: '<|' + role + '|>'
_BOMB_ERRORS = (MemoryError, RecursionError, OverflowError)


def render(tokenizer: Any, messages: Messages, template: str | None) -> str:
    """Return the text that a chat template makes of messages.

    It runs in transformers' immutable sandbox, which keeps it from the machine but does not bound its time. Raises
    PromptError for a template that is missing, unsafe or broken.
    """
    import jinja2

    if template is None and not getattr(tokenizer, "chat_template", None):
        raise PromptError("This model has no chat template; use --raw or name a template file with --chat-template.")
    try:
        text: str = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            chat_template=template,
            tokenize=False,
            add_generation_prompt=True,
        )
        text.encode()  # no half characters
    except jinja2.exceptions.SecurityError as error:
        raise PromptError(f"This is an unsafe chat template: {_first_line(error)}.") from error
    except jinja2.TemplateSyntaxError as error:
        raise PromptError(f"The chat template is wrong in line {error.lineno}: {_first_line(error)}.") from error
    except _BOMB_ERRORS as error:
        raise PromptError(f"The chat template grows too large or too deep ({type(error).__name__}).") from error
    except (jinja2.TemplateError, *_PYTHON_ERRORS) as error:
        raise PromptError(f"The chat template cannot be applied: {_first_line(error)}.") from error
    return text


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def encode_messages(tokenizer: Any, messages: Messages, template: str | None) -> list[int]:
    """Return the ids of rendered messages, in which only the template has written control tokens.

    A control token is a special token, or an added token that the template could write. Where the messages spell none,
    the ids are the library's own; else what they spell is encoded as ordinary text.
    """
    masked, bodies = _mask(messages)
    skeleton = render(tokenizer, masked, template)
    control = _control_tokens(tokenizer, skeleton, template or str(tokenizer.chat_template))
    wanted = [i for i in _encode(tokenizer, skeleton) if i in control]
    if not any(control.keys() & set(_encode(tokenizer, body)) for body in bodies.values()):
        ids = _encode(tokenizer, render(tokenizer, messages, template))
        if [i for i in ids if i in control] == wanted:
            return ids
    return _encode_masked(tokenizer, skeleton, bodies, control, wanted)


def _encode(tokenizer: Any, text: str, *, split_special_tokens: bool = False) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=split_special_tokens)
    return [int(token_id) for token_id in ids]


def _mask(messages: Messages) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Put a random number in place of each content; its outer spaces stay, as templates trim them."""
    masked, bodies = [], {}
    for message in messages:
        content = message["content"]
        body = content.strip()
        number = str(10**39 + secrets.randbelow(9 * 10**39))  # digits: no change of case alters them
        if body:
            bodies[number] = body
            content = content.replace(body, number, 1)
        masked.append({**message, "content": content})
    return masked, bodies


def _control_tokens(tokenizer: Any, skeleton: str, template: str) -> dict[int, Any]:
    """Return the added tokens, by id, that users must not write: special ones and those that the template could.

    It could write what it wrote, what its source names for other roles, and what has the form of a turn's marker.
    """
    written = set(_encode(tokenizer, skeleton))
    return {
        i: token
        for i, token in tokenizer.added_tokens_decoder.items()
        if token.special
        or (token.content.strip() and (i in written or token.content in template or _MARKER.fullmatch(token.content)))
    }


def _encode_masked(
    tokenizer: Any, skeleton: str, bodies: Mapping[str, str], control: Mapping[int, Any], wanted: list[int]
) -> list[int]:
    """Encode the template's text between its control tokens, with the users' text put back as ordinary text."""
    id_of = {control[token_id].content: token_id for token_id in wanted}
    parts = _split_at(skeleton, id_of)
    numbers = re.compile("|".join(bodies))
    ids: list[int] = []
    for place, part in enumerate(parts):
        if place % 2:
            ids.append(id_of[part])
            continue
        text = numbers.sub(lambda found: bodies[found[0]], part)
        if place > 0 and control[id_of[parts[place - 1]]].rstrip:
            text = text.lstrip()
        if place + 1 < len(parts) and control[id_of[parts[place + 1]]].lstrip:
            text = text.rstrip()
        ids += _encode_plain(tokenizer, text, control, before=parts[place - 1] if place else "")
    unknown = tokenizer.unk_token_id  # an unknown character may give it, too
    if [i for i in ids if i in control and i != unknown] != [i for i in wanted if i != unknown]:
        raise PromptError("The prompt spells control tokens that this model's tokenizer cannot write as plain text.")
    return ids


def _split_at(text: str, contents: Iterable[str]) -> list[str]:
    """Split a text at the tokens it spells, the longest first: text, token, text, ..., text."""
    longest_first = sorted(contents, key=len, reverse=True)
    return re.split(f"({'|'.join(map(re.escape, longest_first))})", text) if longest_first else [text]


def _encode_plain(tokenizer: Any, text: str, control: Mapping[int, Any], *, before: str) -> list[int]:
    """Encode text that stands after a control token (or at the start), with no control token in it."""
    if not text:
        return []
    ids = _encode(tokenizer, text, split_special_tokens=True)
    if before and _encode(tokenizer, f"{before}a")[1:] != _encode(tokenizer, "a"):  # only a text's start gets a space
        ids = _encode_inside(tokenizer, text)
    if control.keys().isdisjoint(ids):
        return ids
    parts = _split_at(text, [token.content for token in control.values()])
    pieces = [piece for place, part in enumerate(parts) for piece in (part if place % 2 else [part]) if piece]
    first, *others = pieces  # a token that still came out is encoded letter by letter
    ids = _encode_inside(tokenizer, first) if before else _encode(tokenizer, first, split_special_tokens=True)
    return ids + [i for piece in others for i in _encode_inside(tokenizer, piece)]


def _encode_inside(tokenizer: Any, text: str) -> list[int]:
    """Encode text as in the middle of another, where a SentencePiece model writes no space before it."""
    for guard in ("\n", "a", "."):
        head = _encode(tokenizer, guard)
        ids = _encode(tokenizer, guard + text, split_special_tokens=True)
        if ids[: len(head)] == head:
            return ids[len(head) :]
    return _encode(tokenizer, text, split_special_tokens=True)
