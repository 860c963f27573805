"""The frame of a command that reads a text with a model: what its flags say of the model and of the answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from .notes import Notes
from .terminal import ColorChoice

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFlags:
    """The flags that score, diff and tokens share, as they were given."""

    preset: str | None
    model: str | None
    revision: str | None
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    offline: bool
    trust_remote_code: bool
    json: bool
    color: ColorChoice
    quiet: bool
    verbose: bool = False
    output: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How and where a command answers."""

    given: TextFlags
    notes: Notes
    stream: TextIO

    def console(self) -> Console | None:
        """Give a console for tables; None where the answer is JSON."""
        from .terminal import console_for

        return None if self.given.json else console_for(self.stream, self.given.color)

    def write_document(self, document: Mapping[str, Any]) -> None:
        """Write the answer as one line of JSON."""
        from .json_line import is_unicode, line_of

        self.stream.write(line_of(document, is_ascii=not is_unicode(self.stream)) + "\n")


@contextmanager
def answering(params: Mapping[str, Any]) -> Iterator[Answer]:
    """Give a command's answer to write; its file stands once the context ends without an error.

    params: of the command, TextFlags among them.
    """
    given = TextFlags(**{name: value for name, value in params.items() if name in TextFlags.__dataclass_fields__})
    notes = Notes(sys.stderr, is_quiet=given.quiet)
    notes.status("starting ...")
    try:
        from .destination import Destination

        with Destination(given.output) as destination:
            yield Answer(given=given, notes=notes, stream=destination.stream)
            destination.stream.flush()
            destination.keep()
    finally:
        notes.clear()
