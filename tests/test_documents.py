"""The JSON documents: their schema, their numbers, and that they are strict."""

import io
import json
import math
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from minigen.cli.document_schema import JSON_SCHEMA, JSONL_SCHEMA
from minigen.cli.documents import DocumentView
from minigen.cli.json_line import line_of, strict
from minigen.cli.samples import Run, Sample
from minigen.generation.errors import NumberError
from minigen.generation.margins import DOMAINS, narrowed
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import Sampler
from minigen.generation.stats import RunStats
from minigen.generation.trace import KNOBS, Candidate, Draw, Inspection, Interval, Output
from minigen.presets.settings import Choice

SETTINGS = {
    "temperature": Choice(0.8, "preset smollm2 (smollm2.yaml:19)"),
    "logit_bias": Choice({7: -math.inf}, "flag --logit-bias"),
    "stop": Choice(("END",), "flag --stop"),
    "seed": Choice(None, "built-in"),
}


class Utf8(io.StringIO):
    """A stream in memory that says which encoding it has."""

    encoding = "utf-8"


class Latin1(io.StringIO):
    """A stream in memory that cannot hold every character."""

    encoding = "iso-8859-1"


def constant_error(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def parsed(line: str) -> Any:
    return json.loads(line, parse_constant=constant_error)


def clock_of(*times: float) -> Any:
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def output_of(token_id: int | None, text: str, **ending: Any) -> Output:
    draw = None
    if token_id is not None:
        ruled_out = Candidate(token_id=7, logit=-math.inf, logprob=-math.inf, final_prob=0.0, dropped_by="logit_bias")
        draw = Draw(
            token_id=token_id, logit=2.0, logprob=-0.5, rank=1, entropy=1.25, final_prob=1.0, u=None,
            candidates=(ruled_out,),
        )  # fmt: skip
    return Output(request_id="0", text=text, token_id=token_id, draw=draw, **ending)


def written(outputs: list[Output], *, does_stream: bool, does_inspect: bool = True, out: Any = None) -> list[Any]:
    out = out if out is not None else Utf8()
    run = Run(model="tiny", preset="smollm2", prompt="a\0b", settings=SETTINGS, device="cpu")
    view = DocumentView(out, run, lambda i: f"<{i}>", does_stream=does_stream, does_inspect=does_inspect)
    stats = RunStats(load_seconds=10.0, clock=clock_of(0.0, 0.0, 2.0, 2.1, 2.2))
    stats.begin(4)
    sample = Sample(index=0, seed=5, stats=stats, does_keep_outputs=does_inspect)
    view.begin(0)
    for output in outputs:
        sample.take(output)
        view.show(output)
    view.end(sample)
    text = out.getvalue()
    assert text.endswith("\n")
    return [parsed(line) for line in text.split("\n")[:-1]]


HI = [output_of(1, "h"), output_of(2, ""), output_of(3, "i\ufffd", finish_reason="stop", stop=3)]


def test_a_document_has_everything_and_fits_the_schema() -> None:
    """STA-2"""
    (document,) = written(HI, does_stream=False)
    Draft202012Validator(JSON_SCHEMA).validate(document)
    assert document["text"] == "hi\ufffd"
    assert (document["finish_reason"], document["stop"], document["seed"]) == ("stop", 3, 5)
    assert document["prompt"] == "a\0b"
    assert document["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    assert document["timing"]["load_seconds"] == 10.0
    assert document["timing"]["first_token_seconds"] == 2.0
    assert document["timing"]["prefill_tokens_per_second"] == 2.0
    assert document["timing"]["decode_tokens_per_second"] == pytest.approx(10.0)
    assert document["memory"]["peak_bytes"] > 0
    assert "error" not in document


def test_what_is_not_finite_is_null() -> None:
    """STA-7"""
    (document,) = written(HI, does_stream=False)
    assert document["settings"]["logit_bias"] == {"value": {"7": None}, "origin": "flag --logit-bias"}
    candidate = document["tokens"][0]["candidates"][0]
    assert candidate == {
        "id": 7, "text": "<7>", "logit": None, "logprob": None, "final_prob": 0.0, "dropped_by": "logit_bias",
    }  # fmt: skip
    assert strict([math.nan, math.inf, -math.inf, 1.5]) == [None, None, None, 1.5]


def test_tokens_stand_only_in_an_inspected_document() -> None:
    (document,) = written(HI, does_stream=False, does_inspect=False)
    Draft202012Validator(JSON_SCHEMA).validate(document)
    assert "tokens" not in document


def test_a_chosen_seed_stands_among_the_settings() -> None:
    (document,) = written(HI, does_stream=False)
    assert document["settings"]["seed"] == {"value": 5, "origin": "chosen for this run"}


def test_each_line_of_a_stream_fits_its_schema_and_the_texts_join() -> None:
    lines = written(HI, does_stream=True)
    for line in lines:
        Draft202012Validator(JSONL_SCHEMA).validate(line)
    *tokens, done = lines
    assert [(line["event"], line["index"], line["id"]) for line in tokens] == [
        ("token", 0, 1),
        ("token", 1, 2),
        ("token", 2, 3),
    ]
    assert "".join(line["text"] for line in tokens) == done["text"] == "hi\ufffd"
    assert done["event"] == "done"


def test_an_interrupted_stream_joins_too() -> None:
    """TTY-4"""
    held = [output_of(1, "h"), Output(request_id="0", text="eld", finish_reason="interrupted")]
    lines = written(held, does_stream=True)
    for line in lines:
        Draft202012Validator(JSONL_SCHEMA).validate(line)
    assert [line["text"] for line in lines] == ["h", "eld", "held"]
    assert lines[1]["id"] is None
    assert lines[2]["finish_reason"] == "interrupted"
    assert lines[2]["usage"]["completion_tokens"] == 1


def test_an_error_still_gives_a_document() -> None:
    """TTY-5, DEV-4"""
    failed = Output(request_id="0", text="", finish_reason="error", error=NumberError("no numbers."))
    (document,) = written([output_of(1, "h"), failed], does_stream=False)
    Draft202012Validator(JSON_SCHEMA).validate(document)
    assert (document["text"], document["finish_reason"], document["error"]) == ("h", "error", "no numbers.")
    assert document["timing"]["decode_tokens_per_second"] is None


def test_a_line_holds_nothing_that_steers() -> None:
    """SEC-1, STA-7"""
    line = line_of({"text": "\x1b\x9b\u202e\u2028\ud800中\n"})
    assert line == '{"text":"\\u001b\\u009b\\u202e\\u2028�中\\n"}'


def test_a_narrow_encoding_gets_escapes() -> None:
    """TTY-16"""
    out = Latin1()
    written([output_of(1, "中", finish_reason="length")], does_stream=False, out=out)
    assert '"text":"\\u4e2d"' in out.getvalue()


INSPECTION = Inspection(num_candidates=10, has_stages=True)


def staged(count: int, vocab: int = 40, **given: Any) -> list[Output]:
    """Give the outputs of some steps whose draws tell of their stages."""
    generator = torch.Generator().manual_seed(1)
    sampler = Sampler(SamplingParams(**{"seed": 5} | given), inspection=INSPECTION)
    draws = [sampler.draw(torch.randn(vocab, generator=generator) * 2) for _ in range(count)]
    outputs = [Output(request_id="0", text="x", token_id=draw.token_id, draw=draw) for draw in draws]
    return [*outputs[:-1], replace(outputs[-1], finish_reason="length")]


def record_of(interval: Interval) -> dict[str, Any]:
    return {
        "low": interval.low,
        "high": interval.high,
        "low_closed": interval.is_low_closed,
        "high_closed": interval.is_high_closed,
    }


def test_a_token_tells_of_its_stages_and_margins() -> None:
    outputs = staged(2, temperature=0.8, top_k=5)
    (document,) = written(outputs, does_stream=False)
    Draft202012Validator(JSON_SCHEMA).validate(document)
    for output, token in zip(outputs, document["tokens"], strict=True):
        assert output.draw is not None
        assert [list(stage) for stage in token["stages"]] == [
            ["name", "tokens_left", "mass_removed", "entropy", "prob", "rank"]
        ] * 3
        assert [tuple(stage.values()) for stage in token["stages"]] == [
            (one.name, one.tokens_left, one.mass_removed, one.entropy, one.prob, one.rank) for one in output.draw.stages
        ]
        assert list(token["margins"]) == list(KNOBS)
        for knob, margin in output.draw.margins.items():
            assert margin is not None
            wanted = {"allowed": record_of(margin.allowed), "picked": record_of(margin.picked)}
            assert token["margins"][knob] == wanted


@pytest.mark.parametrize("does_inspect", [True, False], ids=["outputs kept", "outputs not kept"])
@pytest.mark.parametrize("does_stream", [True, False], ids=["jsonl", "json"])
def test_the_whole_text_s_ranges_stand_in_the_document(does_stream: bool, does_inspect: bool) -> None:
    outputs = staged(6, temperature=0.8)
    lines = written(outputs, does_stream=does_stream, does_inspect=does_inspect)
    for line in lines:
        Draft202012Validator(JSONL_SCHEMA if does_stream else JSON_SCHEMA).validate(line)
    ranges = reduce(narrowed, (output.draw.margins for output in outputs if output.draw is not None), DOMAINS)
    wanted = {knob: record_of(interval) for knob, interval in ranges.items() if interval is not None}
    assert len(wanted) == len(KNOBS)
    assert lines[-1]["margins"] == wanted
    assert all(("stages" in token) is does_inspect for token in lines[:-1])


def test_margins_that_are_not_computed_are_null() -> None:
    """STA-7"""
    lines = written(staged(2, xtc_probability=0.5), does_stream=True)
    for line in lines:
        Draft202012Validator(JSONL_SCHEMA).validate(line)
        assert line["margins"] == dict.fromkeys(KNOBS)


def test_without_stages_there_are_no_margins() -> None:
    lines = written(HI, does_stream=True)
    assert all("margins" not in line and "stages" not in line for line in lines)


def test_a_token_s_record_does_not_grow_with_the_vocabulary() -> None:
    """STA-9"""
    given = {"temperature": 0.8, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1}
    small, large = (len(line_of(written(staged(1, vocab, **given), does_stream=False)[0])) for vocab in (40, 40_000))
    assert large < 1.3 * small  # ids and numbers of more digits
