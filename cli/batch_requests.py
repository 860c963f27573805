"""What a line of a batch asks for: a prompt or messages, an id, a system text, and sampling settings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

from ..generation.errors import ParameterError, PromptError, UsageError
from ..generation.params import TEXTS
from ..presets.settings import SAMPLING
from ..presets.spelling import nearest
from .batch_input import Line

Form = Literal["json", "text"]  # of a line: JSON, or a prompt as it stands
KEYS: Final = ("id", "prompt", "messages", "system")  # besides the sampling settings
_HALF = re.compile("[\ud800-\udfff]")  # of a character
_MAX_SHOWN: Final = 60  # characters of a key in a message
_MAX_DIGITS: Final = 10  # of a token id
_KINDS: Final = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRequest:
    """A line's request, checked as far as it takes no model."""

    prompt: str | None = None  # or messages, one of the two
    messages: Sequence[Mapping[str, str]] = ()
    system: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # by the names of SamplingParams


def is_blank(line: Line, form: Form) -> bool:
    """Whether a line holds no request at all: nothing, or in JSON nothing but spaces."""
    return line.num_bytes == 0 or (form == "json" and not line.is_too_long and not line.raw.strip())


def fields_of(line: Line, form: Form) -> dict[str, Any]:
    """Give what stands in a line by its keys, not checked yet. Raises UsageError for what is no JSON object."""
    text = _decoded(line)
    if form == "text":
        return {"prompt": text}
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise UsageError(f"The line is no JSON: {error.msg.rstrip('.')} at character {error.pos + 1}.") from None
    except RecursionError:
        raise UsageError("The line is nested too deeply.") from None
    except ValueError:  # Python reads no more than 4300 digits
        raise UsageError("The line has a number of too many digits.") from None
    if not isinstance(data, dict):
        kind = _KINDS.get(type(data), "null")
        raise UsageError(f'The line must be an object, such as {{"prompt": "..."}}, not {kind}.')
    return data


def id_of(fields: Mapping[str, Any]) -> str | int | None:
    """Give the id of a line, as it is to be given back. Raises UsageError for what is neither text nor whole number."""
    found = fields.get("id")
    if isinstance(found, bool) or not isinstance(found, str | int | None):
        raise ParameterError("id", found, "a text or a whole number")
    if isinstance(found, str):
        _check_whole("id", found)
    return found


def request_of(fields: Mapping[str, Any]) -> LineRequest:
    """Check what stands in a line. A value of null is as good as none.

    Raises UsageError and its kind for a key that is unknown, a wrong type, and no prompt or two. Whether a setting
    is within its range is SamplingParams' to say.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    for name in fields:
        if name not in KEYS and name not in SAMPLING:
            raise _unknown(name)
    if "prompt" in given and "messages" in given:
        raise UsageError("prompt and messages contradict each other: give one of them.")
    if "prompt" not in given and "messages" not in given:
        raise UsageError("The line has no prompt and no messages: give one of them.")
    prompt = _text("prompt", given["prompt"]) if "prompt" in given else None
    if prompt == "":
        raise PromptError("The prompt is empty.")
    messages = _messages(given["messages"]) if "messages" in given else ()
    if "system" in given and any(message["role"] == "system" for message in messages):
        raise UsageError("system and a message of the role system contradict each other: give one of them.")
    return LineRequest(
        prompt=prompt,
        messages=messages,
        system=_text("system", given["system"]) if "system" in given else None,
        settings={name: _setting(name, value) for name, value in given.items() if name in SAMPLING},
    )


def _decoded(line: Line) -> str:
    if line.is_too_long:
        raise PromptError(f"The line has {line.num_bytes:,} bytes, and the limit is {line.limit:,}.")
    try:
        return line.raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"The line must be UTF-8, and it has the byte 0x{line.raw[error.start]:02x} at offset {error.start}."
        ) from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value in pairs:
        if name in data:
            raise UsageError(f"{_short(name)} is given twice.")
        data[name] = value
    return data


def _refuse_constant(name: str) -> NoReturn:
    raise UsageError(f"The line is no JSON: {name} is no number there.")


def _unknown(name: str) -> UsageError:
    guess = nearest(name, (*KEYS, *SAMPLING))
    hint = f"did you mean {guess}?" if guess else f"the keys are {', '.join(KEYS)}, and the sampling settings."
    return UsageError(f"{_short(name)} is not known; {hint}")


def _short(name: str) -> str:
    """Give the beginning of a name that may be anything."""
    start = _HALF.sub("\ufffd", name[:_MAX_SHOWN])
    return start if start == name and name.isidentifier() else repr(start)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ParameterError(name, value, "a text")
    _check_whole(name, value)
    return value


def _check_whole(name: str, text: str) -> None:
    found = _HALF.search(text)
    if found:
        raise UsageError(f"{name} is no valid text: character {found.start() + 1} is half of one ({found[0]!r}).")


def _messages(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise ParameterError("messages", value, "a list of at least one message")
    for place, message in enumerate(value):
        name = f"messages[{place}]"
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise ParameterError(name, message, "an object with role and content, and nothing else")
        for key in ("role", "content"):
            _text(f"{name}.{key}", message[key])
    return value


def _setting(name: str, value: Any) -> Any:
    """Give a setting as SamplingParams takes it."""
    if name == "logit_bias" and isinstance(value, dict):
        return {_token_id(key): -math.inf if bias is None else bias for key, bias in value.items()}
    if name in TEXTS:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                _check_whole(name, text)
    return value


def _token_id(key: str) -> int | str:
    """Give a token id, which JSON can only write as text; what is none stays for SamplingParams to refuse."""
    return int(key) if key.isascii() and key.isdecimal() and len(key) <= _MAX_DIGITS else key
