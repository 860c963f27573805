"""Writing a trace: a view that shows nothing, and keeps what another view is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from ..generation.errors import RunError, UsageError
from ..generation.params import next_seed
from ..generation.trace import Draw, Leading, Output
from ..generation.words import Words
from .destination import Destination, is_standard_output
from .documents import document, token_record
from .json_line import line_of
from .samples import CHOSEN_SEED, Run, Sample
from .trace_file import packed
from .trace_schema import VERSION
from .views import View

NAMED = 64  # leading tokens of a step whose texts are kept


class Texts(Protocol):
    """What a trace asks about tokens."""

    def text(self, token_id: int) -> str: ...

    def is_special(self, token_id: int) -> bool: ...


def trace_destination(path: Path | None, output: Path | None) -> AbstractContextManager[Destination | None]:
    """Give the file that a trace goes to, in a context; nothing where none is wanted.

    Raises UsageError for a file that cannot be written, and for one that the text has already.
    """
    if path is None:
        return nullcontext()
    if is_standard_output(path):
        raise UsageError("--trace needs a file of its own, because standard output carries the text.")
    if output is not None and os.path.realpath(path) == os.path.realpath(output):
        raise UsageError(f"--trace and --output both name {str(path)!r}: give each a file of its own.")
    return Destination(path, "--trace")


def header_facts(vocab_size: int, prompt_ids: Sequence[int], words: Words, width: int) -> dict[str, Any]:
    """Give what the header tells besides the settings: the vocabulary's size, and ids that stand for texts."""
    return {
        "width": width,
        "vocab_size": vocab_size,
        "prompt_ids": prompt_ids,
        "end_token_ids": words.end_token_ids,
        "bad_word_ids": words.bad_word_ids,
        "dry_breaker_ids": words.breakers,
        "newline_ids": words.newline_ids,
    }


class TraceView:
    """Shows a run on another view and writes its trace, a line at a time.

    facts: what header_facts gives.
    Where the file cannot be written, the sample under way is finished, and then RunError raised.
    """

    def __init__(self, inner: View, trace: Destination, run: Run, names: Texts, facts: Mapping[str, Any]) -> None:
        self._inner, self._trace, self._run, self._names, self._facts = inner, trace, run, names, facts
        self._seed = self._sample = self._step = 0
        self._named: set[int] = set()  # tokens whose texts stand in the file
        self._failure: RunError | None = None

    def start(self, seed: int) -> None:
        """Write the header; `seed` is the first sample's. From here on the file is kept, as far as it goes."""
        self._trace.keep()
        self._seed = seed
        settings = {name: choice._asdict() for name, choice in self._run.settings.items()}
        if settings["seed"]["value"] is None:
            settings["seed"] = {"value": seed, "origin": CHOSEN_SEED}
        header = {"event": "trace", "version": VERSION, "minigen": version("minigen-cli"), **self._facts}
        about = {"model": self._run.model, "preset": self._run.preset, "prompt": self._run.prompt}
        self._write(header | about | {"settings": settings})

    def begin(self, index: int) -> None:
        """Write the sample's seed."""
        self._inner.begin(index)
        self._sample, self._step = index, 0
        self._write({"event": "sample", "sample": index, "seed": next_seed(self._seed, index)})

    def show(self, output: Output) -> None:
        """Write a token; text that came without one is an event without one."""
        self._inner.show(output)
        if output.token_id is None and not output.text:
            return
        event = {"event": "token", "sample": self._sample}
        event |= token_record(self._step, output, self._names.text, does_inspect=True)
        if output.draw is None:
            self._write(event)
            return
        self._step += 1
        self._write(event | self._traced(output.draw), output.draw.leading)

    def end(self, sample: Sample) -> None:
        """Write the document."""
        self._inner.end(sample)
        self._write({"event": "done"} | document(self._run, sample, None))
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Leave the other view in order."""
        self._inner.close()

    def _traced(self, draw: Draw) -> dict[str, Any]:
        """Give what only a trace tells of a token, but for its leading logits."""
        likeliest = draw.leading.token_ids[:NAMED] if draw.leading is not None else ()
        self._named |= {draw.token_id, *(one.token_id for one in draw.candidates)}
        new = [token_id for token_id in likeliest if token_id not in self._named]
        self._named.update(new)
        return {
            "special": self._names.is_special(draw.token_id),
            "texts": {token_id: self._names.text(token_id) for token_id in new},
        }

    def _write(self, record: Mapping[str, Any], leading: Leading | None = None) -> None:
        """Write a line at once. Leading logits are most of it, and nothing in them needs an escape."""
        if self._failure is not None:
            return
        line = line_of(record)
        if leading is not None:
            kept = json.dumps(packed(leading), allow_nan=False, separators=(",", ":"))
            line = f'{line[:-1]},"leading":{kept}}}'
        try:
            self._trace.stream.write(line + "\n")
            self._trace.stream.flush()
        except OSError as error:
            self._failure = self._trace.failure(error)
            self._trace.drop()
