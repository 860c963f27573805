"""Kinds of options: numbers within a range, lists, switches. A value of None means "not given"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import typer

from ..generation.about import SETTINGS
from ..generation.errors import ParameterError
from ..generation.ranges import RANGES, Range
from ..presets.spelling import flag_of

SAMPLING_PANEL = "Sampling"
_EACH_TEXT = {  # a flag gives one text of the list
    "stop": "Ends the text where this string comes, which is not shown.",
    "bad_words": "Never writes the tokens of this text, with or without a space before it.",
    "dry_sequence_breakers": "Lets dry_multiplier count no repetition across this text, in place of the usual ones.",
}


CLEARED = ("bad_words", "dry_sequence_breakers")  # texts that a single empty value leaves none of
IDS_WANTED = "token ids, 0 or more, separated by commas"
_EMPTY = "A single '' is the empty list."


def number(flag: str, limits: Range) -> Callable[[str], int | float]:
    """Give a parser that says, for anything but a number within `limits`, which flag wants what."""

    def parse(text: str) -> int | float:
        try:
            value = limits.kind(text)
        except ValueError:
            raise ParameterError(flag, text, str(limits) if limits.kind is int else limits.after("a number")) from None
        try:
            return limits.check(flag, value)
        except ParameterError as error:
            raise ParameterError(flag, Typed(text.strip()), error.wanted) from None

    return parse


class Typed(str):
    """A number as it was typed, which a message shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def setting(name: str, short: str = "", *, about: str | None = None) -> Any:
    """Give the option of one number setting; its range stands in ranges.py, what it does in about.py."""
    flag = flag_of(name)
    return typer.Option(
        *(short, flag) if short else (flag,),
        help=f"{about or SETTINGS[name]} ({RANGES[name]})",
        parser=number(flag, RANGES[name]),
        metavar="NUMBER",
        rich_help_panel=SAMPLING_PANEL,
    )


def choice(name: str) -> Any:
    """Give the option of a setting that is one of a few words, which what it does names."""
    return typer.Option(
        flag_of(name),
        metavar="NAME",
        rich_help_panel=SAMPLING_PANEL,
        help=SETTINGS[name],
    )


def texts(name: str) -> Any:
    """Give the option of a setting that is a list of texts."""
    return typer.Option(
        flag_of(name),
        metavar="TEXT",
        rich_help_panel=SAMPLING_PANEL,
        show_default=False,
        help=f"{_EACH_TEXT[name]} Repeatable.{f' {_EMPTY}' if name in CLEARED else ''}",
    )


def token_ids(name: str) -> Any:
    """Give the option of a setting that is a list of token ids; one value may hold several, separated by commas."""
    return typer.Option(
        flag_of(name),
        metavar="ID,ID…",
        rich_help_panel=SAMPLING_PANEL,
        show_default=False,
        parser=partial(_ids, flag_of(name)),
        help=f"{SETTINGS[name]} Repeatable. {_EMPTY}",
    )


def _ids(flag: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ParameterError(flag, text, IDS_WANTED) from None


def words(*words: str) -> Callable[[str], list[str]]:
    """Give a shell completion that offers these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def bias(text: str) -> tuple[int, float]:
    """Read one ID=B of --logit-bias."""
    token_id, _, value = text.partition("=")
    try:
        return int(token_id), float(value)
    except ValueError:
        raise ParameterError(
            "--logit-bias", text, "ID=B, a token id (minigen tokens TEXT shows it) and a number, such as 257=-5"
        ) from None


def switch(flags: str, about: str, panel: str | None) -> Any:
    """Give an option that is on or off. panel: the group of help in which it stands; None beside --help."""
    return typer.Option(*flags.split(), help=about, metavar="", rich_help_panel=panel, show_default=False)
