"""The trace of a run: what `minigen run --trace` keeps, and `minigen replay` and `minigen report` read.

A trace file is strict JSON lines: a header, then for each sample its seed, its tokens and its document.
`trace_schema.py` says what stands in each; `trace_writing.py` writes it, `trace_reading.py` reads it.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import ge
from typing import Any

from ..generation.trace import TEMPERATURES, Leading

SUM_DIGITS = 6  # they are good to no more


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHeader:
    """What holds for every sample of a trace."""

    version: int
    minigen: str  # the version of the program that wrote it
    width: int  # logits kept of each step
    vocab_size: int
    model: str
    preset: str
    prompt: str  # what the user gave, joined
    settings: Mapping[str, Mapping[str, Any]]  # by name: value and origin, as in a document
    prompt_ids: Sequence[int]  # what the model read
    end_token_ids: Sequence[int]
    bad_word_ids: Sequence[Sequence[int]]
    dry_breaker_ids: Mapping[int, Sequence[Sequence[int]]]  # by the id that begins one: what may finish it
    newline_ids: Sequence[int] = ()


@dataclass(slots=True, kw_only=True)
class TracedSample:
    """One text of a trace. `tokens` and `leading` have one entry for each token, in the same order."""

    index: int
    seed: int
    tokens: list[dict[str, Any]] = field(default_factory=list)  # as in the JSON of a run, and `special`
    leading: list[Leading] = field(default_factory=list)
    tail: str = ""  # text that was held back to the end and came without a token
    document: dict[str, Any] | None = None  # as in the JSON of a run, without tokens; None: it was cut off

    @property
    def text(self) -> str:
        """The text, as far as it goes."""
        if self.document is not None:
            return str(self.document["text"])
        return "".join(token["text"] for token in self.tokens) + self.tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace file that was read."""

    name: str  # of the file, for messages
    header: TraceHeader
    samples: list[TracedSample]
    texts: Mapping[int, str]  # token texts by id, of all tokens that the file names
    is_complete: bool  # every sample has its document, and the last line is whole
    warnings: Sequence[str] = ()  # what was made allowance for, a sentence each


def packed(leading: Leading) -> dict[str, Any]:
    """Give the leading logits of a step as they stand in the file."""
    return {
        "ids": _encoded(array("I", leading.token_ids)),
        "logits": _encoded(array("f", leading.logits)),
        "num_others": leading.num_others,
        "others_logsumexp": leading.others_logsumexp if leading.num_others else None,
        "others_logsumexps": [round(each, SUM_DIGITS) for each in leading.others_logsumexps if leading.num_others],
        "deviation": leading.deviation,
    }


def unpacked(record: Mapping[str, Any], *, vocab_size: int, most: int) -> Leading:
    """Give the leading logits of a step from their record. Raises ValueError for what cannot be.

    most: how many there may be.
    """
    ids, logits = _decoded("I", record["ids"]), _decoded("f", record["logits"])
    if not 0 < len(ids) == len(logits):
        raise ValueError(f"leading has {len(ids)} ids and {len(logits)} logits")
    if len(ids) > most:
        raise ValueError(f"leading has {len(ids)} ids, and the header promises at most {most}")
    if max(ids) >= vocab_size or len(set(ids)) < len(ids):
        raise ValueError("leading has an id twice, or one that is not in the vocabulary")
    if not all(map(math.isfinite, logits)) or not all(map(ge, logits, logits[1:])):
        raise ValueError("leading has logits that are not finite or do not fall")
    others, total = record["num_others"], record["others_logsumexp"]
    if others > vocab_size - len(ids) or (others == 0) != (total is None):
        raise ValueError(f"leading has {others} others, and {total} as the logarithm of their sum")
    sums = [float(each) for each in record["others_logsumexps"]]
    if len(sums) not in (0, len(TEMPERATURES)):
        raise ValueError(f"leading has {len(sums)} others_logsumexps, and there are {len(TEMPERATURES)} or none")
    return Leading(
        token_ids=ids,
        logits=logits,
        num_others=others,
        others_logsumexp=-math.inf if total is None else float(total),
        others_logsumexps=sums,
        deviation=math.nan if record["deviation"] is None else float(record["deviation"]),
    )


def _encoded(numbers: array[int] | array[float]) -> str:
    return base64.b64encode(_swapped(numbers).tobytes()).decode("ascii")


def _decoded(kind: str, text: str) -> array[Any]:
    """Give the numbers of a base64 text; they stay packed, eight times smaller than a list of Python's own."""
    numbers: array[Any] = array(kind)
    numbers.frombytes(base64.b64decode(text, validate=True))
    return _swapped(numbers)


def _swapped(numbers: array[Any]) -> array[Any]:
    """Turn the machine's order of bytes into little-endian, or back."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
