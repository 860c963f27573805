"""What `minigen score` is asked for, checked before any model is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..generation.errors import ParameterError, UsageError
from ..generation.ranges import Range
from .contradictions import refuse_lone_system, refuse_together
from .notes import Notes
from .text_input import read_text, reader_for

_MARKS = re.compile(r"(\\[\\,]|,)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePlan:
    """What is to be scored."""

    text: str  # TEXT, joined
    context: str | None  # of --context
    is_chat: bool
    system: str | None
    options: tuple[str, ...]  # continuations to rank; () where none are
    expected: str | None  # the continuation that --expect names
    min_prob: float
    num_surprising: int | None
    window: int | None
    stride: int | None


def score_plan(params: Mapping[str, Any], notes: Notes) -> ScorePlan:
    """Check the options and read the texts. Raises UsageError and its kind."""
    _check(params)
    reader = reader_for(notes, no_stdin=params["no_stdin"])
    argument = reader.argument
    return ScorePlan(
        context=None if params["before"] is None else argument(params["before"], "--context"),
        is_chat=params["chat"],
        system=None if params["system"] is None else argument(params["system"], "--system"),
        options=split_options([argument(value, "--options") for value in params["options"] or ()]),
        expected=None if params["expect"] is None else argument(params["expect"], "--expect"),
        min_prob=params["min_prob"] or 0.0,
        num_surprising=params["top_surprising"],
        window=params["window"],
        stride=params["stride"],
        text=read_text(
            reader, params["text"], params["file"], no_stdin=params["no_stdin"], command="score", noun="text"
        ),
    )


def split_options(values: Sequence[str]) -> tuple[str, ...]:
    r"""Split values at their commas, spaces kept; `\,` is a comma and `\\` a backslash.

    Raises UsageError for an empty text or a repeated one.
    """
    if "" in values:
        raise ParameterError("--options", "", 'texts separated by commas, such as " Paris, Lyon"')
    texts = [text for value in values for text in _separated(value)]
    for i, text in enumerate(texts):
        if not text:
            raise UsageError("--options holds an empty text: separate the texts by single commas.")
        if text in texts[:i]:
            raise UsageError(f"--options names {text!r} twice.")
    return tuple(texts)


def _separated(value: str) -> list[str]:
    texts = [""]
    for piece in _MARKS.split(value):
        if piece == ",":
            texts.append("")
        else:
            texts[-1] += piece[1:] if _MARKS.fullmatch(piece) else piece
    return texts


def _check(params: Mapping[str, Any]) -> None:
    has_options, expects = bool(params["options"]), params["expect"] is not None
    continues = has_options or expects
    mode = "--options" if has_options else "--expect"
    refuse_together(
        [
            (has_options, "--options", expects, "--expect"),
            (continues, mode, params["before"] is not None, "--context"),
            (continues, mode, params["top_surprising"] is not None, "--top-surprising"),
            (continues, mode, params["window"] is not None, "--window"),
            (continues, mode, params["stride"] is not None, "--stride"),
            (params["quiet"], "--quiet", params["verbose"], "--verbose"),
        ]
    )
    if params["expect"] == "":
        raise UsageError("--expect must be a text that could follow, not ''.")
    if expects and params["min_prob"] is None:
        raise UsageError("--expect needs --min-prob, the least probability that passes, such as 0.5.")
    if params["min_prob"] is not None and not expects:
        raise UsageError(f"--min-prob {params['min_prob']:g} needs --expect, the text that it is asked of.")
    if params["chat"] and not continues and not params["before"]:
        raise UsageError("--chat needs a turn to answer: give it with --context, or give --options or --expect.")
    if params["window"] is not None and params["stride"] is not None:
        Range(int, 1, params["window"] - 1).check("--stride", params["stride"])
    refuse_lone_system(params["system"], is_chat=params["chat"])
