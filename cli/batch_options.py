"""The options of `minigen batch` that no other command has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import typer.core

from ..generation.errors import ParameterError, UsageError
from ..generation.ranges import Range
from .option_kinds import number, switch

_INPUT, _ENGINE, _OUTPUT = "Input", "Engine", "Output"
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([kmgt]i?b|b)?", re.IGNORECASE | re.ASCII)
_POWERS: Final = "bkmgt"
_ADDRESS: Final = re.compile(r"auto|local|(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}", re.ASCII)


def size(text: str) -> int:
    """Give the bytes that a size such as 512MB (millions), 2GiB (powers of 1024) or 1000000 means."""
    found = _SIZE.fullmatch(text.strip())
    unit = (found[2] or "b").lower() if found else "b"
    num_bytes = int(float(found[1]) * (1024 if "i" in unit else 1000) ** _POWERS.index(unit[0])) if found else 0
    if num_bytes < 1:
        raise ParameterError("--kv-memory", text, "a size such as 512MB, 2GiB or 1000000 (bytes)")
    return num_bytes


def ray_address(text: str) -> str:
    """Give the address of a Ray cluster, or nothing where none was given. Raises UsageError for what is none."""
    if text.startswith("ray://"):
        raise UsageError(
            f"--ray cannot take {text}, since Ray Data does not run through Ray's client: run minigen on a machine of "
            "the cluster, with --ray auto."
        )
    if text and not _ADDRESS.fullmatch(text):
        raise UsageError(
            f"--ray must be followed by an address such as 10.0.0.5:6379, auto or local, or by another option, not by "
            f"{text!r}: the input goes before it."
        )
    return text


class RayCommand(typer.core.TyperCommand):
    """A command whose option --ray may do without its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line."""
        return super().parse_args(ctx, list(_with_value(args)))


def _with_value(arguments: Sequence[str]) -> Iterator[str]:
    """Give a command line in which --ray has an empty value where none follows."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for place, word in enumerate(arguments):
        is_bare = word == "--ray" and place < end and (place + 1 == len(arguments) or arguments[place + 1][:1] == "-")
        yield "--ray=" if is_bare else word


Source = Annotated[
    Path,
    typer.Argument(
        metavar="IN", show_default=False,
        help="A file of JSON lines, each with prompt or messages, and id, system and sampling settings as wanted; "
        "- is standard input.",
    ),
]  # fmt: skip
Lines = Annotated[bool, switch("--lines", "Each line is a prompt as it stands, not JSON.", _INPUT)]
MaxRunning = Annotated[
    int | None,
    typer.Option(
        "--max-running", metavar="NUMBER", parser=number("--max-running", Range(int, 1, 4096)),
        rich_help_panel=_ENGINE, help="Requests that run at a time (default: 16 on a CPU, else 64).",
    ),
]  # fmt: skip
KvMemory = Annotated[
    int | None,
    typer.Option(
        "--kv-memory", metavar="SIZE", parser=size, rich_help_panel=_ENGINE,
        help="Memory for keys and values at most, such as 512MB or 2GiB (default: what suits the device).",
    ),
]  # fmt: skip
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="[ADDRESS]", parser=ray_address, rich_help_panel=_ENGINE,
        help="Run on a Ray cluster: at an address such as 10.0.0.5:6379, one that is found (auto), or one of this "
        "machine alone (local); without a value, one that is found, else of this machine.",
    ),
]  # fmt: skip
Ordered = Annotated[
    bool, switch("--ordered", "Write in the order of the input, rather than as requests finish.", _OUTPUT)
]
Resume = Annotated[bool, switch("--resume", "Go on where an interrupted --output ends.", _OUTPUT)]
Overwrite = Annotated[bool, switch("--overwrite", "Begin an --output anew that holds something already.", _OUTPUT)]
