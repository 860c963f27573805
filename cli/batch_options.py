"""The options of `minigen batch` that no other command has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from ..generation.errors import ParameterError
from ..generation.ranges import Range
from .option_kinds import number, switch

_INPUT, _ENGINE, _WORLD = "Input", "Engine", "World"
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([kmgt]i?b|b)?", re.IGNORECASE | re.ASCII)
_POWERS: Final = "bkmgt"


def size(text: str) -> int:
    """Give the bytes that a size such as 512MB (millions), 2GiB (powers of 1024) or 1000000 means."""
    found = _SIZE.fullmatch(text.strip())
    unit = (found[2] or "b").lower() if found else "b"
    num_bytes = int(float(found[1]) * (1024 if "i" in unit else 1000) ** _POWERS.index(unit[0])) if found else 0
    if num_bytes < 1:
        raise ParameterError("--kv-memory", text, "a size such as 512MB, 2GiB or 1000000 (bytes)")
    return num_bytes


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
Ordered = Annotated[
    bool, switch("--ordered", "Write in the order of the input, rather than as requests finish.", _WORLD)
]
Resume = Annotated[bool, switch("--resume", "Go on where an interrupted --output ends.", _WORLD)]
Overwrite = Annotated[bool, switch("--overwrite", "Begin an --output anew that holds something already.", _WORLD)]
