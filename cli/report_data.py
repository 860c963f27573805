"""What the script of a report draws from: a trace's numbers as compact JSON, each token's name written once.

A sample is {index, rest, steps}; a step is a list in the order of STEP, its lists flat. Tokens, stages and margins
stand as indices into `names`, `stages` and `words`. report.js reads it in the same order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..generation.trace import KNOBS
from .coloring import SCALES
from .escaping import shown, shown_in_cell
from .margin_words import MarginWords
from .report_text import Piece, pieces
from .token_names import unnamed
from .trace_file import Trace, TracedSample
from .traced_draws import interval_of

STEP: Final = (
    "name",
    "kind",  # as in report_text.py
    "piece",
    "mark",
    "logprob",
    "total",  # what a logit exceeds its logprob by: the logsumexp of all logits
    "rank",
    "entropy",
    "final_prob",
    "u",
    "candidates",  # for each: name, logprob, final_prob, index of the stage that dropped it or -1
    "stages",  # for each: index of its name, tokens_left, mass_removed, entropy, prob, rank
    "margins",  # for each knob: where it is allowed and where it is picked, in words
)
_DIGITS: Final = 9  # significant ones: a float32 comes through whole
_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


class Index:
    """Numbers things in the order in which they first come."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}

    def of(self, thing: Any) -> int:
        """Give the number of a thing, a new one where it is new."""
        return self._places.setdefault(thing, len(self._places))

    def things(self) -> list[Any]:
        """Give all things by their numbers."""
        return list(self._places)


class Tables:
    """What the steps of a trace name by number."""

    def __init__(self, trace: Trace) -> None:
        self.names, self.stages, self.words = Index(), Index(), Index()
        self._margins = margin_words(trace)

    def name(self, token_id: int, text: str | None) -> int:
        """Give the number of a token's name."""
        return self.names.of((token_id, shown_in_cell(unnamed(token_id) if text is None else text)))

    def stage(self, name: str) -> int:
        """Give the number of a stage."""
        return self.stages.of(shown_in_cell(name))

    def margin(self, knob: str, one: Mapping[str, Any] | None) -> Sequence[int]:
        """Give the numbers of what is said of a margin: where the token is allowed, where it is picked."""
        intervals = (None, None) if one is None else (interval_of(one["allowed"]), interval_of(one["picked"]))
        return [self.words.of(self._margins.say(knob, interval)) for interval in intervals]


def data_of(trace: Trace) -> dict[str, Any]:
    """Give what the script needs of a trace, as plain JSON data. Texts have their control characters shown."""
    tables = Tables(trace)
    samples = [_sample(sample, tables) for sample in trace.samples]
    special = {token["id"] for sample in trace.samples for token in sample.tokens if token["special"]}
    used = values_of(trace)
    return {
        "vocab_size": trace.header.vocab_size,
        "knobs": [[knob, used.get(knob)] for knob in KNOBS],
        "scales": {name: {"bounds": one.bounds, "is_falling": one.is_falling} for name, one in SCALES.items()},
        "stages": tables.stages.things(),
        "names": [[token_id, text, int(token_id in special)] for token_id, text in tables.names.things()],
        "words": tables.words.things(),
        "samples": samples,
    }


def values_of(trace: Trace) -> dict[str, float]:
    """Give the values of the settings that have margins, as far as they are numbers."""
    values = {name: trace.header.settings[name]["value"] for name in KNOBS if name in trace.header.settings}
    numbers = {name: _number(value) for name, value in values.items() if type(value) in (int, float)}
    return {name: number for name, number in numbers.items() if number is not None}


def margin_words(trace: Trace) -> MarginWords:
    """Give what puts this trace's margins into words."""
    return MarginWords(trace.header.vocab_size, values_of(trace))


def json_of(data: Mapping[str, Any]) -> str:
    """Write data as JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def visible(text: str) -> str:
    """Give text as the page shows it: nothing in it steers, and a piece that would not be seen at all is spelt."""
    is_seen = any(char.isspace() or shown_in_cell(char) == char for char in text)
    return shown(text) if is_seen else shown_in_cell(text)


def _sample(sample: TracedSample, tables: Tables) -> dict[str, Any]:
    written, rest = pieces(sample.tokens, sample.text)
    steps = [_step(token, piece, tables) for token, piece in zip(sample.tokens, written, strict=True)]
    return {"index": sample.index, "rest": visible(rest), "steps": steps}


def _step(token: Mapping[str, Any], piece: Piece, tables: Tables) -> list[Any]:
    logit, logprob = token.get("logit"), token.get("logprob")
    margins = token.get("margins")
    return [
        tables.name(token["id"], token["token"]),
        piece.kind,
        visible(piece.text),
        piece.mark,
        _number(logprob),
        None if logit is None or logprob is None else _number(logit - logprob),
        token["rank"],
        _number(token.get("entropy")),
        _number(token.get("final_prob")),
        _number(token.get("u")),
        [part for one in token.get("candidates", ()) for part in _candidate(one, tables)],
        [part for one in token.get("stages", ()) for part in _stage(one, tables)],
        [] if margins is None else [part for knob in KNOBS for part in tables.margin(knob, margins.get(knob))],
    ]


def _candidate(one: Mapping[str, Any], tables: Tables) -> Sequence[Any]:
    dropped_by = one["dropped_by"]
    return (
        tables.name(one["id"], one["text"]),
        _number(one["logprob"]),
        _number(one["final_prob"]),
        -1 if dropped_by is None else tables.stage(dropped_by),
    )


def _stage(one: Mapping[str, Any], tables: Tables) -> Sequence[Any]:
    shares = (_number(one[key]) for key in ("mass_removed", "entropy", "prob"))
    return (tables.stage(one["name"]), one["tokens_left"], *shares, one["rank"])


def _number(value: float | None) -> float | int | None:
    """Give a number with the digits that a float32 has."""
    if value is None or not abs(value) <= sys.float_info.max:  # a file may hold any number
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
