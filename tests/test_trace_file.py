"""The trace of a run: what is written, how it is read, and what is refused."""

import base64
import gzip
import io
import json
import math
import os
import re
import signal
import subprocess
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from minigen.cli import trace_reading
from minigen.cli.app import main
from minigen.cli.destination import Destination
from minigen.cli.document_schema import TOKEN
from minigen.cli.samples import Run, Sample
from minigen.cli.schema_check import MisfitError, fitted
from minigen.cli.trace_file import Trace
from minigen.cli.trace_reading import read_trace
from minigen.cli.trace_schema import EVENT_TOKEN, HEADER, LEADING, SAMPLE, TRACE_SCHEMA
from minigen.cli.trace_writing import TraceView
from minigen.cli.views import TextView
from minigen.generation.errors import RunError, UsageError
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import Sampler
from minigen.generation.stats import RunStats
from minigen.generation.trace import TEMPERATURES, Inspection, Output
from minigen.presets.settings import Choice
from processes import COMMAND
from stubs import byte_tokenizer, scripted_folder

ROOT = Path(__file__).parent.parent
TEXT = "Hello [/b] 中\n\x1b[2J\u202e!"
VOCAB, WIDTH = 300, 16
FACTS = {
    "width": WIDTH, "vocab_size": VOCAB, "prompt_ids": [1, 2], "end_token_ids": [3], "bad_word_ids": [[4, 5]],
    "dry_breaker_ids": {6: ((), (7, 8))}, "newline_ids": [9],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that writes TEXT after a prompt of two tokens."""
    script = [*TEXT.encode(), 257]
    path = tmp_path_factory.mktemp("model")
    return str(scripted_folder(path, script, prompt_length=2, tokenizer=byte_tokenizer()))


pytestmark = pytest.mark.usefixtures("no_stdin")


class Names:
    def text(self, token_id: int) -> str:
        return f"<{token_id}>\x1b\ud800"

    def is_special(self, token_id: int) -> bool:
        return token_id == 3


def rows_of(count: int) -> list[torch.Tensor]:
    """Rows with ties and with tokens that the model rules out."""
    generator = torch.Generator().manual_seed(1)
    rows = [(torch.randn(VOCAB, generator=generator) * 3).mul(2).round().div(2) for _ in range(count)]
    return [row.index_fill(0, torch.arange(0, 40), -math.inf) for row in rows]


def written(path: Path, rows: list[torch.Tensor], params: SamplingParams, *, tail: str = "") -> list[Output]:
    """Write a trace of draws from rows."""
    inspection = Inspection(num_candidates=3, has_stages=True, num_leading=WIDTH)
    sampler = Sampler(params, inspection=inspection)
    run = Run(
        model="tiny",
        preset="smollm2",
        prompt="a[b]",
        device="cpu",
        settings={
            "temperature": Choice(params.temperature, "flag"),
            "logit_bias": Choice(params.logit_bias, "flag"),
            "seed": Choice(None, "built-in"),
        },
    )
    outputs = []
    with Destination(path, "--trace") as destination:
        view = TraceView(TextView(io.StringIO(), is_terminal=False), destination, run, Names(), FACTS)
        view.start(sampler.seed)
        sample = Sample(index=0, seed=sampler.seed, stats=RunStats())
        sample.stats.begin(2)
        view.begin(0)
        for row in rows:
            draw = sampler.draw(row)
            outputs.append(Output(request_id="0", text="x", token_id=draw.token_id, draw=draw))
        for output in [*outputs, *([Output(request_id="0", text=tail, finish_reason="interrupted")] if tail else [])]:
            sample.take(output)
            view.show(output)
        sample.finish_reason = "interrupted"
        view.end(sample)
        view.close()
    return outputs


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_trace_reads_back_as_it_was(tmp_path: Path) -> None:
    rows, path = rows_of(6), tmp_path / "run.trace"
    outputs = written(path, rows, SamplingParams(seed=5, logit_bias={7: -math.inf}), tail="held")
    trace = read_trace(path)
    (sample,) = trace.samples
    assert (trace.is_complete, trace.warnings) == (True, ())
    assert (trace.header.model, trace.header.prompt, trace.header.width) == ("tiny", "a[b]", WIDTH)
    assert trace.header.dry_breaker_ids == {6: [[], [7, 8]]}
    assert trace.header.settings["seed"] == {"value": 5, "origin": "chosen for this run"}
    assert trace.header.settings["logit_bias"]["value"] == {"7": None}
    assert (sample.seed, sample.text, sample.tail) == (5, "xxxxxxheld", "held")
    assert [token["id"] for token in sample.tokens] == [output.token_id for output in outputs]
    for token, leading, output in zip(sample.tokens, sample.leading, outputs, strict=True):
        draw = output.draw
        assert draw is not None
        assert draw.leading is not None
        assert list(leading.token_ids) == list(draw.leading.token_ids)
        assert list(leading.logits) == list(draw.leading.logits)
        assert (token["u"], token["rank"], token["special"]) == (draw.u, draw.rank, output.token_id == 3)
        assert [stage["name"] for stage in token["stages"]] == [stage.name for stage in draw.stages]
        assert set(token["margins"]) == set(draw.margins)


def test_the_numbers_are_those_of_the_whole_rows(tmp_path: Path) -> None:
    """Recomputed in float64."""
    rows, path = rows_of(6), tmp_path / "run.trace"
    written(path, rows, SamplingParams(seed=5, temperature=3))
    for leading, row in zip(read_trace(path).samples[0].leading, rows, strict=True):
        ids = list(leading.token_ids)
        assert list(leading.logits) == row[ids].tolist()
        others = row.double().index_fill(0, torch.tensor(ids), -math.inf)
        assert leading.num_others == VOCAB - 40 - WIDTH
        assert leading.others_logsumexp == pytest.approx(float(others.logsumexp(-1)), abs=1e-12)
        sums = [float((others / t).logsumexp(-1)) for t in TEMPERATURES]
        assert leading.others_logsumexps == pytest.approx(sums, abs=2e-6)
        assert leading.deviation == pytest.approx(float(row[40:].double().std(correction=0)), rel=1e-12)


def test_every_line_fits_the_schema(tmp_path: Path) -> None:
    """STA-7"""
    path = tmp_path / "run.trace"
    written(path, rows_of(3), SamplingParams(seed=5), tail="held")
    for line in lines_of(path):
        Draft202012Validator(TRACE_SCHEMA).validate(line)


def test_a_line_holds_nothing_that_steers(tmp_path: Path) -> None:
    """SEC-1"""
    path = tmp_path / "run.trace"
    written(path, rows_of(3), SamplingParams(seed=5))
    assert b"\x1b" not in path.read_bytes()
    assert read_trace(path).texts[int(rows_of(1)[0].argmax())].endswith(">\x1b\ufffd")


def test_each_token_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    written(path, rows_of(20), SamplingParams(seed=5))
    named = [token_id for line in lines_of(path) for token_id in line.get("texts", ())]
    assert len(named) == len(set(named))
    trace = read_trace(path)
    leading = {token_id for each in trace.samples[0].leading for token_id in each.token_ids}
    assert leading <= set(trace.texts)  # the width is below 64


def test_the_page_lists_every_key() -> None:
    page = (ROOT / "docs" / "trace.md").read_text("utf-8")
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))

    def keys(title: str, start: str = "") -> set[str]:
        text = sections[title][sections[title].index(start) if start else 0 :]
        rows = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
        return {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert keys("The header") == set(HEADER["properties"])
    assert keys("The beginning of a sample") == set(SAMPLE["properties"])
    of_leading = keys("A token", "`leading`:")
    assert of_leading == set(LEADING["properties"])
    assert keys("A token") - of_leading == set(EVENT_TOKEN["properties"]) - set(TOKEN["properties"])


def changed(path: Path, number: int, **keys: Any) -> Path:
    """Change keys of one line; None takes a key away."""
    lines = lines_of(path)
    lines[number] |= keys
    lines[number] = {name: value for name, value in lines[number].items() if name not in keys or value is not None}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def leading_with(path: Path, **keys: Any) -> Mapping[str, Any]:
    leading: dict[str, Any] = lines_of(path)[2]["leading"]
    return leading | keys


def packed(kind: str, numbers: list[Any]) -> str:
    return base64.b64encode(array(kind, numbers).tobytes()).decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Lines: header, sample, three tokens, done."""
    target = tmp_path / "run.trace"
    written(target, rows_of(3), SamplingParams(seed=5))
    return target


SPAN = {"high": 3, "low_closed": True, "high_closed": True}


@pytest.mark.parametrize(
    ("number", "keys", "message"),
    [
        (0, {"version": "1"}, r"not a trace that minigen run --trace wrote \(line 1\): version must be 1, not '1'"),
        (0, {"vocab_size": 0}, r"line 1\): vocab_size must be 1 or more, not 0"),
        (0, {"vocab_size": 2}, r"line 1\): prompt_ids has an id that is not in the vocabulary"),
        (0, {"prompt_ids": None}, r"line 1\): prompt_ids is missing"),
        (0, {"prompt_ids": [1, True]}, r"line 1\): prompt_ids\[1\] must be a whole number, not True"),
        (0, {"settings": {"top_p": {"value": 7, "origin": ""}}}, r"line 1\): settings: top_p must be above 0"),
        (0, {"settings": {"stop": {"value": 7, "origin": ""}}}, r"line 1\): settings: stop must be at most 64"),
        (0, {"dry_breaker_ids": {"x": []}}, r"line 1\): a token id must be a whole number, not 'x'"),
        (0, {"event": "done"}, r"line 1\): the header should stand here"),
        (1, {"event": "trace"}, r"damaged \(line 2\): a sample or a token should stand here"),
        (1, {"event": ["x"]}, r"damaged \(line 2\): a sample or a token should stand here"),
        (1, {"sample": 1}, r"line 2\): sample must be 0, not 1"),
        (1, {"seed": -1}, r"line 2\): seed must be 0 or more, not -1"),
        (1, {"seed": 2**63}, r"line 2\): seed must be a number within reach"),
        (2, {"sample": 1}, r"line 3\): sample 1 has not begun, or has ended"),
        (3, {"index": 7}, r"line 4\): index must be 1, not 7"),
        (2, {"id": "x"}, r"line 3\): id must be a whole number or null, not 'x'"),
        (2, {"leading": None}, r"line 3\): leading is missing"),
        (2, {"rank": 0}, r"line 3\): rank must be 1 or more, not 0"),
        (2, {"entropy": "x" * 999}, r"line 3\): entropy must be a number or null, not 'x{199}…"),
        (2, {"texts": {"-1": "x"}}, r"line 3\): a token id must be a whole number, not '-1'"),
        (2, {"token": "\ud800"}, r"line 3\): token must be a text of whole characters"),
        (
            2,
            {"margins": {"top_k": dict.fromkeys(["allowed", "picked"], {"low": None} | SPAN)}},
            r"line 3\): margins.top_k must be null, not {'allowed': {'low': None",
        ),
        (5, {"schema": 2}, r"line 6\): schema must be 1, not 2"),
        (5, {"event": "later"}, r"line 6\): a sample or a token should stand here"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(path: Path, number: int, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_trace(changed(path, number, **keys))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ids": "!"}, "line 3"),
        ({"ids": "AAA="}, r"line 3\): bytes length not a multiple of item size"),
        ({"ids": ""}, "leading has 0 ids and 16 logits"),
        ({"ids": packed("I", [1, 1, *range(14)])}, "leading has an id twice, or one that is not in the vocabulary"),
        ({"ids": packed("I", [VOCAB, *range(15)])}, "leading has an id twice, or one that is not in the vocabulary"),
        ({"logits": packed("f", [math.nan] * 16)}, "leading has logits that are not finite or do not fall"),
        ({"logits": packed("f", [math.inf] * 16)}, "leading has logits that are not finite or do not fall"),
        ({"logits": packed("f", list(range(16)))}, "leading has logits that are not finite or do not fall"),
        (
            {"ids": packed("I", list(range(40))), "logits": packed("f", [0.0] * 40)},
            "leading has 40 ids, and the header promises at most 16",
        ),
        ({"ids": packed("I", list(range(16)))}, r"the chosen token, \d+, is not among the leading ones"),
        ({"num_others": VOCAB}, f"leading has {VOCAB} others"),
        ({"num_others": 0}, "leading has 0 others"),
        ({"num_others": -1}, "leading.num_others must be 0 or more, not -1"),
        ({"others_logsumexps": [1.0] * 99}, "leading.others_logsumexps must be at most 10 long, not 99"),
        ({"others_logsumexps": [1.0] * 4}, "leading has 4 others_logsumexps, and there are 10 or none"),
    ],
)
def test_leading_logits_that_cannot_be_are_refused(path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_trace(changed(path, 2, leading=leading_with(path, **keys)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"hello", "is not a trace that minigen run --trace wrote (line 1): it is not JSON"),
        (b"hello\n", "(line 1): it is not JSON"),
        (b"\xff\n", "(line 1): it is not JSON"),
        (b"[1]\n", "(line 1): the header should stand here"),
        (b"{}\n", "(line 1): the header should stand here"),
        (b'{"schema":1,"text":"x"}\n', "(line 1): the header should stand here"),
        (b'{"event":"trace","version":NaN}\n', "(line 1): it is not JSON"),
        (b'{"event":"trace","version":1e999}\n', "(line 1): minigen is missing"),
        (b"[" * 100_000 + b"\n", "(line 1): it is not JSON"),
        (b"1" * 5000 + b"\n", "(line 1): it is not JSON"),
        (gzip.compress(b"{}"), "(line 1): it is compressed; unpack it first"),
        (b'{"event":"trace","version":2}\n', "was written by a later minigen: its version is 2, and this one reads"),
    ],
)
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    target = tmp_path / "x"
    target.write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(message)):
        read_trace(target)


@pytest.mark.parametrize(("name", "why"), [("missing", "No such file"), (".", "Is a directory")])
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=rf"The trace '.*' cannot be read: {why}"):
        read_trace(tmp_path / name)


def test_a_line_or_a_file_too_large_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without an end fills no memory."""
    with pytest.raises(UsageError, match="it is longer than 33,554,432 bytes"):
        read_trace(Path("/dev/zero"))
    monkeypatch.setattr(trace_reading, "MAX_BYTES", 2**10)
    with pytest.raises(UsageError, match="is larger than 0 MiB, the limit"):
        read_trace(path)


@pytest.mark.parametrize("cut", [1, 5, 400])
def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(path: Path, cut: int) -> None:
    whole = path.read_bytes()
    done = whole.rindex(b'{"event":"done"')
    path.write_bytes(whole[: done - cut])
    trace = read_trace(path)
    tokens = 2 if cut > 1 else 3
    assert not trace.is_complete
    assert trace.samples[0].document is None
    assert len(trace.samples[0].tokens) == len(trace.samples[0].leading) == tokens
    assert trace.samples[0].text == "x" * tokens
    (warning,) = trace.warnings
    assert warning.endswith(f"ends early, after {tokens} tokens of sample 0; it is read as far as it goes.")


def test_a_cut_in_the_middle_is_not_taken_for_an_end(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[3][:100] + b"\n", *lines[4:]]))
    with pytest.raises(UsageError, match=r"damaged \(line 4\): it is not JSON"):
        read_trace(path)


def test_a_later_key_is_left_out(path: Path) -> None:
    trace = read_trace(changed(path, 2, later=[[[1]]]))
    assert "later" not in trace.samples[0].tokens[0]


def test_numbers_stay_packed(path: Path) -> None:
    """STA-9"""
    (leading, *_) = read_trace(path).samples[0].leading
    assert isinstance(leading.logits, array)
    assert isinstance(leading.token_ids, array)


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        (1, {"type": "string"}, "it must be a text, not 1"),
        (True, {"type": "integer"}, "it must be a whole number, not True"),
        (1.5, {"type": ["integer", "null"]}, "it must be a whole number or null, not 1.5"),
        (2.0, {"type": "number", "maximum": 1}, "it must be 1 or less, not 2.0"),
        ("x", {"enum": ["a", "b"]}, "it must be one of 'a', 'b', not 'x'"),
        ([1, "x"], {"type": "array", "items": {"type": "integer"}}, r"\[1\] must be a whole number, not 'x'"),
        ([1, 2], {"type": "array", "maxItems": 1}, "it must be at most 1 long, not 2"),
        (1, {"anyOf": [{"type": "null"}, {"type": "string"}]}, "it must be a text, not 1"),
    ],
)
def test_data_is_held_against_a_schema(value: Any, schema: dict[str, Any], message: str) -> None:
    with pytest.raises(MisfitError, match=message):
        fitted(value, schema)


def test_documents_that_list_tokens_hold_no_leading_logits(tmp_path: Path) -> None:
    """STA-9"""
    (output,) = written(tmp_path / "run.trace", rows_of(1), SamplingParams(seed=5))
    sample = Sample(index=0, seed=5, stats=RunStats(), does_keep_outputs=True)
    sample.stats.begin(1)
    sample.take(output)
    (kept,) = sample.outputs
    assert kept.draw is not None
    assert kept.draw.leading is None
    assert kept.draw.candidates


def run_raw(folder: str, *arguments: str) -> int:
    return main(["run", "ab", "--raw", "-m", folder, *arguments])


@pytest.mark.parametrize(
    "flags", [[], ["--inspect"], ["--json"], ["--json", "--inspect"], ["--jsonl", "--inspect", "--stages"]]
)
def test_stdout_is_the_same_with_a_trace(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    """U1"""
    target = tmp_path / "run.trace"
    assert run_raw(folder, "--top-k", "1", "--seed", "3", "-n", "2", *flags) == 0
    plain = capsys.readouterr()
    assert run_raw(folder, "--top-k", "1", "--seed", "3", "-n", "2", *flags, "--trace", str(target)) == 0
    traced = capsys.readouterr()
    if "--json" in flags or "--jsonl" in flags:
        lines = [[json.loads(line) for line in out.splitlines()] for out in (plain.out, traced.out)]
        for record in (record for each in lines for record in each):
            record.pop("timing", None)
            record.pop("memory", None)
        assert lines[0] == lines[1]
    else:
        assert traced == plain
    trace = read_trace(target)
    assert [(sample.seed, sample.text) for sample in trace.samples] == [(3, TEXT), (4, TEXT)]
    assert [token["special"] for token in trace.samples[0].tokens][-2:] == [False, True]
    assert trace.header.prompt_ids == [97, 98]
    assert trace.header.end_token_ids == [257]
    assert trace.is_complete
    assert [path.name for path in tmp_path.iterdir()] == ["run.trace"]


def test_the_width_is_kept(folder: str, tmp_path: Path) -> None:
    target = tmp_path / "run.trace"
    assert run_raw(folder, "--trace", str(target), "--trace-width", "7", "--top", "3", "--max-new-tokens", "2") == 0
    trace = read_trace(target)
    assert trace.header.width == 7
    assert {len(leading.token_ids) for leading in trace.samples[0].leading} == {7}
    assert {len(token["candidates"]) for token in trace.samples[0].tokens} <= {3, 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "-"], "--trace needs a file of its own, because standard output carries the text."),
        (["--trace", "/dev/stdout"], "--trace needs a file of its own, because standard output carries the text."),
        (["--trace", "{}/x", "--output", "{}/./x"], "--trace and --output both name '{}/x': give each a file of"),
        (["--trace", "{}/no/x"], "--trace '{}/no/x' cannot be written: No such file or directory."),
        (["--trace", "{}"], "--trace '{}' cannot be written: Is a directory."),
        (["--trace-width", "5"], "--trace-width 5 needs --trace, whose file it limits."),
    ],
)
def test_a_trace_that_cannot_be_is_refused_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["run", "x", "-m", "no/such/model", *(each.format(tmp_path) for each in arguments)]) == 2
    assert capsys.readouterr().err.startswith(f"minigen: {message.format(tmp_path)}")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_sentence_and_the_text_is_whole(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raw(folder, "--trace", "/dev/full", "-t", "0", "-n", "3") == 1
    out, err = capsys.readouterr()
    assert out == TEXT  # the sample under way is finished, no other begun
    assert err == "minigen: --trace '/dev/full' could not be written: No space left on device.\n"


def write_to_a_full_disk(target: Path) -> None:
    run = Run(model="", preset="", prompt="", device="cpu", settings={"seed": Choice(1, "")})
    with Destination(target, "--trace") as destination, open("/dev/full", "w") as full:
        os.dup2(full.fileno(), destination.stream.fileno())
        view = TraceView(TextView(io.StringIO(), is_terminal=False), destination, run, Names(), FACTS)
        view.start(1)
        view.begin(0)
        sample = Sample(index=0, seed=1, stats=RunStats(), finish_reason="length")
        sample.stats.begin(1)
        view.end(sample)


def test_a_full_disk_leaves_the_old_trace(tmp_path: Path) -> None:
    target = tmp_path / "run.trace"
    target.write_text("old")
    with pytest.raises(RunError, match="No space left"):
        write_to_a_full_disk(target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["run.trace"]


def test_a_signal_leaves_a_whole_trace(folder: str, tmp_path: Path) -> None:
    """TTY-4"""
    target = tmp_path / "run.trace"
    process = subprocess.Popen(
        [*COMMAND, "run", "ab", "--raw", "-m", folder, "--jsonl", "-n", "1000", "--trace", str(target)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 130
    trace = read_trace(target)
    last = trace.samples[-1]
    assert trace.is_complete
    assert last.document is not None
    assert last.document["finish_reason"] == "interrupted"


def test_a_trace_goes_through_a_pipe(folder: str, tmp_path: Path) -> None:
    script = 'exec "$@" --trace >(gzip > run.gz)'
    command = ["bash", "-c", script, "sh", *COMMAND, "run", "ab", "--raw", "-m", folder, "-t", "0"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, timeout=120, check=True)
    assert done.stdout.decode() == TEXT
    packed_trace = tmp_path / "run.gz"
    while not packed_trace.read_bytes()[-4:].strip(b"\0"):  # bash does not wait for gzip
        os.sched_yield()
    (tmp_path / "run.trace").write_bytes(gzip.decompress(packed_trace.read_bytes()))
    assert read_trace(tmp_path / "run.trace").samples[0].text == TEXT


@pytest.mark.real_model
def test_a_token_of_the_default_model_takes_less_than_16_kb(default_model: Model, tmp_path: Path) -> None:
    """At the default width, with penalties and filters that add stages."""
    target = tmp_path / "run.trace"
    flags = ["--seed", "3", "--max-new-tokens", "60", "--ignore-eos", "--top-k", "50", "--repetition-penalty", "1.1"]
    assert main(["run", "Tell me of the sea.", "--no-stdin", "--device", "cpu", *flags, "--trace", str(target)]) == 0
    trace: Trace = read_trace(target)
    assert trace.header.width == 1024
    assert target.stat().st_size / len(trace.samples[0].tokens) < 16_000
