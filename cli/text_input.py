"""The text that a command is given: an argument, files, and standard input where that is not forbidden."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..generation.errors import UsageError
from .notes import Notes
from .reading import Reader, names_stdin, read_prompt, standard_input


def reader_for(notes: Notes, *, no_stdin: bool) -> Reader:
    """Give a reader of arguments, files and, unless that is forbidden, standard input."""
    return Reader(None if no_stdin else standard_input(), note=notes.note, warn=notes.warn)


def read_text(
    reader: Reader, argument: str | None, files: Sequence[Path] | None, *, no_stdin: bool, command: str, noun: str
) -> str:
    """Read and join what the user gave: the argument, then files, then standard input.

    command, noun: as read_prompt takes them. Raises what it raises.
    """
    stdin = None if no_stdin else standard_input()
    return read_prompt(
        reader,
        argument,
        files or (),
        use_stdin=not no_stdin,
        is_stdin_terminal=stdin is not None and stdin.isatty(),
        command=command,
        noun=noun,
    )


def read_file_of(reader: Reader, flag: str, path: Path, *, no_stdin: bool) -> str:
    """Read the file that a flag names. Raises UsageError for standard input where that is forbidden."""
    if no_stdin and names_stdin(path):
        raise UsageError(f"{flag} - reads standard input, and --no-stdin forbids it: give one of them.")
    return reader.file(path)
