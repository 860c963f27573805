"""What `minigen diff` is asked for, checked before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..generation.errors import UsageError
from .contradictions import refuse_lone_system, refuse_together
from .notes import Notes
from .reading import Reader
from .text_input import read_file_of, reader_for

TOP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPlan:
    """What is to be compared."""

    a: str
    b: str
    text: str
    is_chat: bool
    system: str | None
    top: int


def diff_plan(params: Mapping[str, Any], notes: Notes) -> DiffPlan:
    """Check the options and read the texts. Raises UsageError and its kind."""
    refuse_together([(params["quiet"], "--quiet", params["verbose"], "--verbose")])
    refuse_lone_system(params["system"], is_chat=params["chat"])
    reader = reader_for(notes, no_stdin=params["no_stdin"])
    a, b, text = (_given(reader, params, name) for name in ("a", "b", "text"))
    if not text:
        raise UsageError("The text is empty: --text is what follows either prompt.")
    system = None if params["system"] is None else reader.argument(params["system"], "--system")
    return DiffPlan(a=a, b=b, text=text, is_chat=params["chat"], system=system, top=params["top"] or TOP)


def _given(reader: Reader, params: Mapping[str, Any], name: str) -> str:
    """Read one of the three texts, from its option or its file."""
    flag = "--text" if name == "text" else f"-{name}"
    typed, path = params[name], params[f"{name}_file"]
    if (typed is None) == (path is None):
        both = "are both given: give one of them" if path is not None else "are both missing: give one of them"
        raise UsageError(f"{flag} and --{name}-file {both}.")
    if path is None:
        return reader.argument(typed, flag)
    return read_file_of(reader, f"--{name}-file", path, no_stdin=params["no_stdin"])
