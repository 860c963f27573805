"""Reading a preset file: bytes to plain data that knows its line numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..generation.errors import PresetError
from .building import Builder, KeyPath
from .dialect import MAX_DEPTH, PresetLoader, TooDeep

MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Document:
    """A preset file's data, with the line and the written form of every value."""

    label: str  # the file's name in messages
    data: dict[str | int, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    words: Mapping[KeyPath, str] = field(default_factory=dict)  # scalars that are not text, as written

    def line_of(self, path: KeyPath) -> int:
        """Give the line of a key or list item, or else that of what holds it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_document(path: Path, label: str) -> Document:
    """Read a preset file; raise PresetError for anything but one YAML mapping of plain data."""
    return parse_document(decode(read_bytes(path, label), label), label)


def read_bytes(path: Path, label: str) -> bytes:
    """Read a regular file of at most MAX_BYTES; raise PresetError otherwise."""
    try:
        if path.is_dir():
            raise PresetError(f"{label} is a folder, not a preset file.")
        if path.exists() and not path.is_file():
            raise PresetError(f"{label} is not a regular file; a preset is a YAML file.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise PresetError(f"There is no preset file {label}.") from None
    except OSError as error:
        raise PresetError(f"{label} cannot be read: {error.strerror or error}.") from error
    except ValueError:  # a NUL in the name
        raise PresetError(f"{label!r} is not a file name.") from None
    if len(data) > MAX_BYTES:
        raise PresetError(f"{label} is larger than 1 MB; a preset is a short YAML file.")
    return data


def decode(data: bytes, label: str) -> str:
    """Decode UTF-8, with or without a byte order mark; raise PresetError with the offset otherwise."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PresetError(f"{label}:{line}: the file is not UTF-8 (byte {error.start}).") from None


def parse_document(text: str, label: str) -> Document:
    """Parse YAML text; raise PresetError for anything but one mapping of plain data."""
    node = _compose(text, label)
    if not isinstance(node, yaml.MappingNode):
        kind = {yaml.ScalarNode: "text", yaml.SequenceNode: "a list"}.get(type(node), "nothing")
        raise PresetError(f"{label}:1: a preset is a mapping (keys with values), but this file holds {kind}.")
    builder = Builder(label)
    return Document(label, builder.build(node, ()), builder.lines, builder.words)


def _compose(text: str, label: str) -> yaml.Node | None:
    line = 1
    try:
        return PresetLoader(text).get_single_node()
    except TooDeep:
        problem = f"nesting goes deeper than {MAX_DEPTH} levels"
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = f"this is not valid YAML: {_problem(error)}"
    except (ValueError, OverflowError, IndexError):  # PyYAML's scanner lets these out for broken escapes
        problem = "this is not valid YAML: an escape or a directive is malformed"
    raise PresetError(f"{label}:{line}: {problem}.")


def _problem(error: yaml.MarkedYAMLError) -> str:
    """Give PyYAML's reason without the lines of the file that it quotes."""
    problem, context = error.problem or "", error.context or ""
    return f"{context}, {problem}" if not problem or problem.startswith("but ") else problem
