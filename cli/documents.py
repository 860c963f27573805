"""The JSON of a run: one document per sample, and with --jsonl a line for each token before it.

`document_schema.py` says what stands in it. A number that is not finite is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Final, TextIO

from ..generation.params import next_seed
from ..generation.stats import peak_memory_bytes
from ..generation.trace import Candidate, Draw, Inspection, Interval, Margin, Output, Stage
from .json_line import is_unicode, line_of
from .samples import CHOSEN_SEED, Run, Sample

SCHEMA = 1
_STAGE_FIELDS: Final = tuple(field.name for field in fields(Stage))
ALL: Final = Inspection(num_candidates=1, has_stages=True)  # however many there are


class DocumentView:
    """Writes the documents, and where `does_stream` holds each token as it comes.

    text_of: gives a token's own text; does_inspect: whether documents list their tokens with the candidates.
    asked: what is listed of a draw, which may tell more for the sake of a trace.
    """

    def __init__(
        self,
        out: TextIO,
        run: Run,
        text_of: Callable[[int], str],
        *,
        does_stream: bool,
        does_inspect: bool,
        asked: Inspection = ALL,
    ) -> None:
        self._out, self._run, self._text_of = out, run, text_of
        self._does_stream, self._does_inspect, self._asked = does_stream, does_inspect, asked
        self._sample = self._step = 0

    def begin(self, index: int) -> None:
        """Start the sample with this index."""
        self._sample, self._step = index, 0

    def show(self, output: Output) -> None:
        """Write the event of a token; text that came without a token is an event without one."""
        if not self._does_stream or (output.token_id is None and not output.text):
            return
        event = {"event": "token", "sample": self._sample}
        listed = _listed(output, self._asked)
        self._write(event | token_record(self._step, listed, self._text_of, does_inspect=self._does_inspect))
        self._step += output.token_id is not None

    def end(self, sample: Sample) -> None:
        """Write the document."""
        event = {"event": "done"} if self._does_stream else {}
        self._write(event | document(self._run, sample, self._text_of if self._does_inspect else None, self._asked))

    def close(self) -> None:
        """There is nothing to put in order."""

    def _write(self, record: Mapping[str, Any]) -> None:
        self._out.write(line_of(record, is_ascii=not is_unicode(self._out)) + "\n")
        self._out.flush()


def document(run: Run, sample: Sample, text_of: Callable[[int], str] | None, asked: Inspection = ALL) -> dict[str, Any]:
    """Give the document of one sample; its tokens stand in it where `text_of` is given, with what is asked for."""
    stats = sample.stats
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "sample": sample.index,
        "model": run.model,
        "preset": run.preset,
        "prompt": run.prompt,
        "text": sample.text,
        "finish_reason": sample.finish_reason,
        "stop": sample.stop,
        "seed": sample.seed,
        "settings": _settings(run, sample),
        "usage": {
            "prompt_tokens": stats.prompt_tokens,
            "completion_tokens": stats.completion_tokens,
            "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        },
        "timing": {
            "load_seconds": stats.load_seconds,
            "first_token_seconds": stats.first_token_seconds,
            "prefill_tokens_per_second": sample.prefill_tokens_per_second,
            "decode_tokens_per_second": stats.decode_tokens_per_second,
            "total_seconds": stats.total_seconds,
        },
        "memory": {"peak_bytes": peak_memory_bytes(run.device)},
    }
    if sample.margins is not None and asked.has_stages:
        record["margins"] = {knob: _interval_record(interval) for knob, interval in sample.margins.items()}
    if sample.error is not None:
        record["error"] = str(sample.error)
    if text_of is not None:
        record["tokens"] = _token_records([_listed(output, asked) for output in sample.outputs], text_of)
    return record


def token_record(index: int, output: Output, text_of: Callable[[int], str], *, does_inspect: bool) -> dict[str, Any]:
    """Give one token: the text that it made safe to show, its own text, and how it was chosen."""
    has_token = output.token_id is not None
    record: dict[str, Any] = {
        "index": index if has_token else None,
        "id": output.token_id,
        "text": output.text,
        "token": text_of(output.token_id) if output.token_id is not None else None,
    }
    if output.draw is not None:
        record |= _draw_record(output.draw)
        if does_inspect:
            record["candidates"] = [_candidate_record(one, text_of) for one in output.draw.candidates]
            record |= _stage_records(output.draw)
    return record


def _listed(output: Output, asked: Inspection) -> Output:
    """Leave out of a draw what is not asked for."""
    if output.draw is None:
        return output
    left_out: dict[str, Any] = {} if asked.num_candidates else {"candidates": ()}
    left_out |= {} if asked.has_stages else {"stages": (), "margins": {}}
    return replace(output, draw=replace(output.draw, **left_out))


def _settings(run: Run, sample: Sample) -> dict[str, Any]:
    """Give every setting with its origin; a seed that nobody gave is the one that was chosen."""
    settings = {name: choice._asdict() for name, choice in run.settings.items()}
    if settings["seed"]["value"] is None:
        settings["seed"] = {"value": next_seed(sample.seed, -sample.index), "origin": CHOSEN_SEED}
    return settings


def _token_records(outputs: Sequence[Output], text_of: Callable[[int], str]) -> list[dict[str, Any]]:
    return [token_record(i, output, text_of, does_inspect=True) for i, output in enumerate(outputs)]


def _draw_record(draw: Draw) -> dict[str, Any]:
    return {
        "logit": draw.logit,
        "logprob": draw.logprob,
        "surprisal": draw.surprisal,
        "rank": draw.rank,
        "entropy": draw.entropy,
        "final_prob": draw.final_prob,
        "u": draw.u,
    } | ({} if draw.order_effect is None else {"order_effect": asdict(draw.order_effect)})


def _stage_records(draw: Draw) -> dict[str, Any]:
    """Give what each stage did and the margins, where a draw has them."""
    if not draw.stages:
        return {}
    return {
        "stages": [_stage_record(stage) for stage in draw.stages],
        "margins": {knob: _margin_record(margin) for knob, margin in draw.margins.items()},
    }


def _stage_record(stage: Stage) -> dict[str, Any]:
    return {name: getattr(stage, name) for name in _STAGE_FIELDS}  # asdict copies each value, at every token


def _margin_record(margin: Margin | None) -> dict[str, Any] | None:
    if margin is None:
        return None
    return {"allowed": _interval_record(margin.allowed), "picked": _interval_record(margin.picked)}


def _interval_record(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {
        "low": interval.low,
        "high": interval.high,
        "low_closed": interval.is_low_closed,
        "high_closed": interval.is_high_closed,
    }


def _candidate_record(one: Candidate, text_of: Callable[[int], str]) -> dict[str, Any]:
    return {
        "id": one.token_id,
        "text": text_of(one.token_id),
        "logit": one.logit,
        "logprob": one.logprob,
        "final_prob": one.final_prob,
        "dropped_by": one.dropped_by,
    }
