"""Reading a trace file: every line is checked before anything is made of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from ..generation.errors import ParameterError, UsageError
from .reading import names_stdin
from .schema_check import MisfitError, fitted
from .trace_file import Trace, TracedSample, TraceHeader, unpacked
from .trace_schema import LINES, VERSION
from .traced_settings import recorded_params

MAX_BYTES: Final = 2**30  # of a file: about 70,000 tokens at the default width
MAX_LINE: Final = 2**25
MAX_DIGITS: Final = 10  # of a token id
_GZIP = b"\x1f\x8b"


def read_trace(path: Path) -> Trace:
    """Read a trace; `-` is standard input.

    A run that was killed leaves a file that ends early: it is read as far as it goes, and `warnings` says so.
    Raises UsageError, with file and line, for anything else that is not a trace.
    """
    is_stdin = names_stdin(path)
    name = "standard input" if is_stdin else repr(str(path))
    if is_stdin and sys.stdin is None:
        raise UsageError("Standard input is closed: give the trace as a file.")
    try:
        if is_stdin:
            return _Reading(name).read(sys.stdin.buffer)
        with path.open("rb") as stream:
            return _Reading(name).read(stream)
    except OSError as error:
        raise UsageError(f"The trace {name} cannot be read: {error.strerror}.") from error


class _Reading:
    """What is known of a trace after the lines so far."""

    def __init__(self, name: str) -> None:
        self._name, self._line, self._is_torn = name, 0, False
        self._header: TraceHeader | None = None
        self._samples: list[TracedSample] = []
        self._texts: dict[int, str] = {}
        self._takers: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "trace": self._take_header,
            "sample": self._take_sample,
            "token": self._take_token,
            "done": self._take_done,
        }

    def read(self, stream: BinaryIO) -> Trace:
        """Read every line."""
        for record in self._records(stream):
            try:
                self._take(record)
            except ValueError as error:
                self._refuse(str(error))
        if self._header is None:
            self._refuse("it is empty" if self._line == 0 else "it is not JSON")
        is_complete = not self._is_torn and bool(self._samples) and all(each.document for each in self._samples)
        return Trace(
            name=self._name,
            header=self._header,
            samples=self._samples,
            texts=self._texts,
            is_complete=is_complete,
            warnings=() if is_complete else (self._warning(),),
        )

    def _records(self, stream: BinaryIO) -> Iterator[Any]:
        """Give the lines as data; a last one that was cut off is left out."""
        size = 0
        while raw := stream.readline(MAX_LINE + 1):
            self._line += 1
            size += len(raw)
            if len(raw) > MAX_LINE:
                self._refuse(f"it is longer than {MAX_LINE:,} bytes")
            if size > MAX_BYTES:
                raise UsageError(f"The trace {self._name} is larger than {MAX_BYTES // 2**20:,} MiB, the limit.")
            if self._line == 1 and raw.startswith(_GZIP):
                self._refuse("it is compressed; unpack it first")
            try:
                yield json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
            except (ValueError, RecursionError):
                if raw.endswith(b"\n"):
                    self._refuse("it is not JSON")
                self._is_torn = True

    def _take(self, record: Any) -> None:
        event = record.get("event") if isinstance(record, dict) else None
        known = ("trace",) if self._header is None else ("sample", "token", "done")
        if not isinstance(event, str) or event not in known:
            raise ValueError(f"{'the header' if self._header is None else 'a sample or a token'} should stand here")
        if event == "trace" and _is_later(record.get("version")):
            version = record["version"]
            raise UsageError(
                f"The trace {self._name} was written by a later minigen: "
                f"its version is {version}, and this one reads version {VERSION}."
            )
        self._takers[event](fitted(record, LINES[event]))

    def _take_header(self, record: dict[str, Any]) -> None:
        breakers = {_token_id(head): tails for head, tails in record["dry_breaker_ids"].items()}
        record["dry_breaker_ids"] = breakers
        self._header = TraceHeader(**{name: record[name] for name in TraceHeader.__dataclass_fields__})
        if max(record["prompt_ids"], default=0) >= record["vocab_size"]:
            raise ValueError("prompt_ids has an id that is not in the vocabulary")
        try:
            recorded_params(self._header.settings)
        except ParameterError as error:
            raise ValueError(f"settings: {str(error).removesuffix('.')}") from None

    def _take_sample(self, record: dict[str, Any]) -> None:
        if record["sample"] != len(self._samples):
            raise ValueError(f"sample must be {len(self._samples)}, not {record['sample']}")
        self._samples.append(TracedSample(index=record["sample"], seed=record["seed"]))

    def _take_token(self, record: dict[str, Any]) -> None:
        sample = self._open_sample(record)
        if record["id"] is None:
            sample.tail += record["text"]
            return
        header = self._header
        assert header is not None
        for name in ("token", "leading", "special", "rank"):
            if record.get(name) is None:
                raise MisfitError(f"{name} is missing")
        if record["index"] != len(sample.tokens):
            raise ValueError(f"index must be {len(sample.tokens)}, not {record['index']}")
        leading = unpacked(record.pop("leading"), vocab_size=header.vocab_size, most=header.width)
        if record["id"] not in leading.token_ids:
            raise ValueError(f"the chosen token, {record['id']}, is not among the leading ones")
        self._learn_texts(record)
        sample.leading.append(leading)
        sample.tokens.append({name: value for name, value in record.items() if name not in ("event", "sample")})

    def _learn_texts(self, record: dict[str, Any]) -> None:
        self._texts |= {_token_id(name): text for name, text in record.pop("texts", {}).items()}
        self._texts |= {one["id"]: one["text"] for one in record.get("candidates", ())}
        self._texts[record["id"]] = record["token"]

    def _take_done(self, record: dict[str, Any]) -> None:
        sample = self._open_sample(record)
        del record["event"]
        sample.document = record

    def _open_sample(self, record: dict[str, Any]) -> TracedSample:
        sample = self._samples[-1] if self._samples else None
        if sample is None or sample.document is not None or sample.index != record["sample"]:
            raise ValueError(f"sample {record['sample']} has not begun, or has ended")
        return sample

    def _warning(self) -> str:
        last = self._samples[-1] if self._samples else None
        where = f"after {len(last.tokens)} tokens of sample {last.index}" if last else "before the first token"
        return f"warning: the trace {self._name} ends early, {where}; it is read as far as it goes."

    def _refuse(self, why: str) -> NoReturn:
        if self._header is None:
            raise UsageError(f"{self._name} is not a trace that minigen run --trace wrote (line {self._line}): {why}.")
        raise UsageError(f"The trace {self._name} is damaged (line {self._line}): {why}.")


def _token_id(name: str) -> int:
    if not (name.isascii() and name.isdecimal() and len(name) < MAX_DIGITS):
        raise ValueError(f"a token id must be a whole number, not {name!r}")
    return int(name)


def _is_later(version: Any) -> bool:
    return type(version) is int and version > VERSION


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
