"""The options of `minigen sweep`: every sampling setting, those that are one number or one name as a list of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Annotated, Any

import typer

from ..generation.errors import ParameterError, UsageError
from ..generation.orders import ORDERS
from ..generation.ranges import RANGES
from ..presets.spelling import flag_of
from .option_groups import SAMPLING
from .option_kinds import SAMPLING_PANEL, Typed, number, switch
from .setting_words import written

LISTED: Sequence[str] = (*(name for name in SAMPLING if name in RANGES), "order")  # the seed is one, but no axis

Prompts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROMPT", show_default=False,
        help="What to continue or to answer, as minigen run takes it: one text; of several words in quotes.",
    ),
]  # fmt: skip
Seeds = Annotated[
    int | None,
    typer.Option(
        "-n", "--seeds", metavar="NUMBER", parser=number("--seeds", RANGES["num_samples"]),
        rich_help_panel=SAMPLING_PANEL,
        help=f"Draws each combination with this many seeds, the same for all. ({RANGES['num_samples']})",
    ),
]  # fmt: skip
Show = Annotated[bool, switch("--show", "Print the texts too, above the table.", "Output")]
TextLines = Annotated[
    bool, switch("--jsonl", "Print one JSON line per text as it ends, then one per combination.", "Output")
]
_SEED = "The first seed (the others count on from it), or the seeds themselves."


def values_of(flag: str, read: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Give a parser of values separated by commas, spaces allowed. read: gives one value, or raises ParameterError."""

    def parse(text: str) -> tuple[Any, ...]:
        if "," not in text:
            return (_alone(flag, text.strip(), read),)
        parts = [part.strip() for part in text.split(",")]
        if not all(parts):
            raise UsageError(
                f"{flag} {text!r} has a comma without a value: separate values by single commas, "
                f'and put a list with spaces in quotes, such as {flag} "1, 2".'
            )
        return tuple(map(read, parts))

    return parse


def _alone(flag: str, text: str, read: Callable[[str], Any]) -> Any:
    """Read the one value that is given; of what cannot be read say that several are separated by commas."""
    try:
        return read(text)
    except ParameterError as error:
        if isinstance(error.value, Typed):  # a number out of its range
            raise
        raise ParameterError(flag, text, f"{error.wanted}, or several separated by commas") from None


def joined_values(name: str, parts: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Join the values of an option that may be given several times. Raises UsageError for a value named twice."""
    values = tuple(value for part in parts for value in part)
    for i, value in enumerate(values):
        if value in values[:i]:
            raise UsageError(f"{flag_of(name)} names {written(value)} twice: give each value once.")
    return values


def _order(text: str) -> str:
    if text not in ORDERS:
        raise ParameterError("--order", text, "one of " + ", ".join(ORDERS))
    return text


def _listing(name: str) -> Any:
    """Give the option of a setting with a list in place of its one value."""
    option = copy(SAMPLING[name].__metadata__[0])
    flag = flag_of(name)
    option.parser = values_of(flag, _order if name == "order" else number(flag, RANGES[name]))
    option.metavar = "NAME,…" if name == "order" else "NUMBER,…"
    option.show_default = False
    option.help = f"{_SEED} ({RANGES[name]})" if name == "seed" else option.help
    return Annotated[list[Any] | None, option]


SWEPT: Mapping[str, Any] = {name: _listing(name) if name in LISTED else kind for name, kind in SAMPLING.items()}
