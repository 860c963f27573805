"""What an output file holds already: which lines are done, which failed, and where a torn end begins."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..generation.errors import UsageError
from ..generation.ranges import MAX_SEED
from .batch_input import Line
from .batch_records import SCHEMA
from .batch_schema import RECORD
from .json_line import line_of
from .setting_words import written

MAX_RECORD: Final = 2**28  # bytes: the longest line may grow sixfold where its id is escaped
_MOST_SHOWN: Final = 80  # characters of a setting in a message
BEGINNING: Final = f'{{"schema":{SCHEMA},"id":'.encode()  # of every record


class Place(NamedTuple):
    """A record in a file: its line's number, and where it stands."""

    line: int
    start: int
    end: int


@dataclass(slots=True, kw_only=True)
class Earlier:
    """What a file holds, packed: 16 bytes for each line that is done. Failed lines count as not done."""

    name: str  # of the file, for messages
    run: Mapping[str, Any] | None = None  # what held for its lines; None: there are none
    lines: array[int] = field(default_factory=lambda: array("Q"))
    digests: array[int] = field(default_factory=lambda: array("Q"))
    failed: array[int] = field(default_factory=lambda: array("Q"))  # start and end of each failed record
    end: int = 0  # bytes of whole records
    lacks_newline: bool = False  # after the last of them
    is_ascending: bool = True  # the lines, failed ones too
    last_line: int = 0

    def __len__(self) -> int:
        """The number of lines that are done."""
        return len(self.lines)


def read_earlier(path: Path, name: str) -> Earlier:
    """Read an output file. A last line that was cut off is left out.

    Raises UsageError for a file that holds anything but the records of one run.
    """
    earlier = Earlier(name=name)
    for place, record in _records(path, earlier):
        _take(earlier, place, record)
    _sort(earlier)
    return earlier


def places(path: Path, name: str) -> Iterator[Place]:
    """Give the place of every record of a file of whole records."""
    for place, _ in _records(path, Earlier(name=name)):
        yield place


def _records(path: Path, earlier: Earlier) -> Iterator[tuple[Place, dict[str, Any]]]:
    number = 0
    with path.open("rb") as stream:
        while raw := stream.readline(MAX_RECORD + 1):
            number += 1
            record = _parsed(raw)
            is_whole = raw.endswith(b"\n")
            if record is None and not is_whole and len(raw) <= MAX_RECORD and _is_torn(raw):
                return
            if record is None:
                raise UsageError(
                    f"{earlier.name} holds something else than records of minigen batch, in line {number}."
                )
            start, earlier.end = earlier.end, earlier.end + len(raw)
            earlier.lacks_newline = not is_whole
            yield Place(record["line"], start, earlier.end), record


def _parsed(raw: bytes) -> dict[str, Any] | None:
    """Give a record, as far as it must be known; None for what is none."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not data.keys() >= set(RECORD["required"]) or data["schema"] != SCHEMA:
        return None
    line, digest, run = data["line"], data["input"], data["run"]
    is_record = (
        type(line) is int
        and 0 < line <= MAX_SEED
        and isinstance(digest, str)
        and len(digest) == 16
        and set(digest) <= set("0123456789abcdef")
        and isinstance(run, dict)
        and type(run.get("seed")) is int
        and 0 <= run["seed"] <= MAX_SEED
    )
    return data if is_record else None


def _is_torn(raw: bytes) -> bool:
    """Whether this can be the beginning of a record; a power cut may leave zeros where the rest was to stand."""
    begun = raw.rstrip(b"\0")
    return begun.startswith(BEGINNING[: len(begun)])


def _take(earlier: Earlier, place: Place, record: dict[str, Any]) -> None:
    if earlier.run is None:
        earlier.run = record["run"]
    elif earlier.run != record["run"]:
        raise UsageError(f"{earlier.name} holds records of two runs: {difference(earlier.run, record['run'])}.")
    earlier.is_ascending &= place.line > earlier.last_line
    earlier.last_line = place.line
    if "error" in record:
        earlier.failed.extend((place.start, place.end))
    else:
        earlier.lines.append(place.line)
        earlier.digests.append(int(record["input"], 16))


def _sort(earlier: Earlier) -> None:
    """Bring what is done into the order of the lines."""
    import numpy as np

    lines = np.frombuffer(earlier.lines, dtype=np.uint64) if earlier.lines else np.zeros(0, np.uint64)
    digests = np.frombuffer(earlier.digests, dtype=np.uint64) if earlier.digests else lines
    order = lines.argsort(kind="stable")
    ranked = lines[order]
    twice = (ranked[1:] == ranked[:-1]).nonzero()[0]
    if twice.size:
        raise UsageError(f"{earlier.name} holds line {ranked[twice[0]]} twice: keep one of its records.")
    earlier.lines, earlier.digests = (array("Q", each[order].tobytes()) for each in (lines, digests))


class Done:
    """The lines that are done, asked in the order of the input."""

    def __init__(self, earlier: Earlier) -> None:
        self._earlier, self._next = earlier, 0

    def holds(self, line: Line) -> bool:
        """Whether a line is done. Raises UsageError where it, or a line before it, has changed since."""
        lines = self._earlier.lines
        if self._next == len(lines) or lines[self._next] > line.number:
            return False
        if lines[self._next] < line.number or self._earlier.digests[self._next] != int(line.digest, 16):
            raise UsageError(
                f"Line {lines[self._next]} of the input has changed since {self._earlier.name} was begun: "
                "give the input that it was begun with, or another --output."
            )
        self._next += 1
        return True

    def check_end(self, num_lines: int) -> None:
        """Raise UsageError where a line is done that the input does not have."""
        if self._next < len(self._earlier.lines):
            raise UsageError(
                f"{self._earlier.name} holds line {self._earlier.lines[-1]}, and the input has {num_lines} lines: "
                "give the input that it was begun with, or another --output."
            )


def check_same(earlier: Earlier, run: Mapping[str, Any]) -> None:
    """Raise UsageError where a file was begun with another model or other settings."""
    if earlier.run is not None and earlier.run != run:
        raise UsageError(
            f"{earlier.name} was begun with other settings: {difference(earlier.run, run)}. "
            "Give the same, or another --output."
        )


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say in what two runs differ: `dtype was "float32" and is "bfloat16"`."""
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return ", ".join(f"{name} was {_word(one, name)} and is {_word(other, name)}" for name in names)


def _word(run: Mapping[str, Any], name: str) -> str:
    if name not in run:
        return "not set"
    text = line_of(run[name]) if isinstance(run[name], str) else written(run[name])
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
