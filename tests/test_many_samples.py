"""Samples that run together: they come in order, whatever their steps, and each is what it would be alone."""

import io
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema import Draft202012Validator
from minigen.cli.app import main
from minigen.cli.color_views import ColoredTextView, ListView
from minigen.cli.coloring import STYLES_OF_16, Coloring
from minigen.cli.document_schema import JSON_SCHEMA
from minigen.cli.documents import DocumentView
from minigen.cli.generating import Generation, Plan
from minigen.cli.in_order import InOrder
from minigen.cli.interrupts import Interrupts
from minigen.cli.notes import Notes
from minigen.cli.reporting import statistics_line, total_line
from minigen.cli.samples import Run, Sample
from minigen.cli.views import TableView, TextView, View
from minigen.generation.errors import NumberError
from minigen.generation.stats import RunStats
from minigen.presets.settings import Choice
from rich.console import Console
from stubs import byte_tokenizer
from test_live import PLAN, Labels
from test_run_command import COMMAND
from tiny_folders import tiny_folder
from together import TogetherEngine, output_of

SHARED = Run(model="m", preset="p", prompt="x", settings={"seed": Choice(5, "flag")}, device="cpu", num_samples=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model, which has a distribution to draw from at each step."""
    return str(tiny_folder(tmp_path_factory.mktemp("model")))


pytestmark = pytest.mark.usefixtures("no_stdin")


class Ids:
    """Names for token ids, as the views ask for them."""

    def label(self, token_id: int) -> str:
        return f'"{token_id}"'

    def text(self, token_id: int) -> str:
        return str(token_id)

    def is_special(self, token_id: int) -> bool:
        return False


def plan_for(count: int, *, seed: int | None = 5, does_show_draws: bool = True) -> Plan:
    params = replace(PLAN.params, seed=seed)
    return Plan(prompt=PLAN.prompt, params=params, num_samples=count, does_show_draws=does_show_draws)


def generate(
    engine: TogetherEngine, view: View, *, interrupts: Interrupts | None = None, does_show_draws: bool = True
) -> tuple[int, str, list[Sample]]:
    """Run all that an engine can give; give the exit code, what was noted, and the samples in the order of reports."""
    err, samples = io.StringIO(), list[Sample]()
    plan = plan_for(len(engine.texts), does_show_draws=does_show_draws)
    generation = Generation(
        engine, plan, view, Notes(err), interrupts or Interrupts(), clock=lambda: 0.0, report=samples.append
    )
    return generation.run(), err.getvalue(), samples


PIPES: dict[str, Callable[[io.StringIO], View]] = {
    "text": lambda out: TextView(out, is_terminal=False),
    "terminal": lambda out: TextView(out, is_terminal=True),
    "colours": lambda out: ColoredTextView(out, Coloring("rank", STYLES_OF_16, Ids()), is_terminal=False),
    "list": lambda out: ListView(TextView(out, is_terminal=False), Console(file=out, width=60), Ids(), "prob"),
    "tables": lambda out: TableView(TextView(out, is_terminal=False), Console(file=out, width=60), Labels()),
    "json": lambda out: DocumentView(out, SHARED, str, does_stream=False, does_inspect=True),
    "jsonl": lambda out: DocumentView(out, SHARED, str, does_stream=True, does_inspect=True),
}
TEXTS = st.lists(st.lists(st.sampled_from(["a", "bc", "", "\n", "---\n", "中"]), max_size=5), min_size=1, max_size=7)


@pytest.mark.parametrize("kind", PIPES)
@settings(max_examples=25, deadline=None)
@given(texts=TEXTS, max_running=st.integers(1, 4), seed=st.integers(0, 1000))
def test_any_order_of_steps_shows_the_samples_in_order(
    kind: str, texts: list[list[str]], max_running: int, seed: int
) -> None:
    """Each view is fed as it would be by samples that come one after the other."""
    order = random.Random(seed)

    def some(running: list[int]) -> list[int]:
        return order.sample(running, order.randint(1, len(running)))

    def shown(engine: TogetherEngine) -> tuple[str, tuple[int, str, list[int]]]:
        out = io.StringIO()
        code, noted, samples = generate(engine, PIPES[kind](out))
        lines = out.getvalue()
        if "json" in kind:
            lines = str([_timeless(json.loads(line)) for line in lines.splitlines()])
        return lines, (code, noted, [sample.index for sample in samples])

    together = TogetherEngine(texts, max_running=max_running, pick=some)
    assert shown(together) == shown(TogetherEngine(texts, max_running=1))


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a record what no two runs have in common."""
    return {key: value for key, value in record.items() if key not in ("timing", "memory")}


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, max_running=st.integers(1, 4), seed=st.integers(0, 1000))
def test_texts_alone_come_in_order_without_holding_anything_back(
    texts: list[list[str]], max_running: int, seed: int
) -> None:
    order = random.Random(seed)
    out = io.StringIO()
    engine = TogetherEngine(
        texts,
        max_running=max_running,
        pick=lambda running: order.sample(running, order.randint(1, len(running))),
    )
    assert generate(engine, TextView(out, is_terminal=False), does_show_draws=False)[0] == 0
    assert out.getvalue() == "\n---\n".join("".join(pieces) for pieces in texts)


def test_the_first_sample_in_order_is_shown_as_it_comes() -> None:
    """TTY-18: nothing that could be shown waits for another sample."""
    out = io.StringIO()
    seen: list[str] = []
    engine = TogetherEngine([["a", "b"], ["x", "y", "z"], ["p"]], before=lambda step: seen.append(out.getvalue()))
    generate(engine, TextView(out, is_terminal=False), does_show_draws=False)
    assert seen == ["", "a", "ab", "ab\n---\nxyz"]
    assert out.getvalue() == "ab\n---\nxyz\n---\np"


@pytest.mark.parametrize(("does_show_draws", "held"), [(True, 1), (False, 0)])
def test_an_output_is_held_back_only_for_a_view_that_wants_it_and_until_it_is_shown(
    does_show_draws: bool, held: int
) -> None:
    order = InOrder(TextView(io.StringIO(), is_terminal=False), does_show_draws=does_show_draws)
    order.begin()
    first, second = (Sample(index=i, seed=i, stats=RunStats()) for i in range(2))
    output = output_of("1", 0, "x")
    before = sys.getrefcount(output)
    second.take(output)
    assert list(order.take(second, output)) == []
    assert sys.getrefcount(output) == before + held
    first.finish_reason = "stop"
    assert list(order.take(first, output_of("0", 0, "a"))) == [first]
    assert sys.getrefcount(output) == before


def test_one_failing_sample_does_not_keep_the_others_from_coming() -> None:
    """BAT-4"""
    failed = {"finish_reason": "error", "error": NumberError("Not numbers at token 2.")}
    stopped = {"finish_reason": "stop", "stop": 0}
    out = io.StringIO()
    engine = TogetherEngine([["a", "b", "c"], ["x"], ["p", "q"]], endings=[stopped, failed, stopped])
    code, noted, samples = generate(engine, TextView(out, is_terminal=False), does_show_draws=False)
    assert (code, out.getvalue()) == (1, "abc\n---\nx\n---\npq")
    assert noted == "minigen: sample 2 of 3: Not numbers at token 2.\n"
    assert [sample.finish_reason for sample in samples] == ["stop", "error", "stop"]


@pytest.mark.parametrize("code", [130, 143])
def test_a_signal_ends_all_and_keeps_what_there_is_of_each(code: int) -> None:
    """TTY-4: those that had nothing to give are left out."""
    interrupts = Interrupts()

    def signalled(step: int) -> None:
        interrupts.exit_code = code if step == 1 else interrupts.exit_code

    out = io.StringIO()
    engine = TogetherEngine([list("abc"), ["x"], list("pqr"), list("uvw")], max_running=3, before=signalled)
    given, noted, samples = generate(engine, TextView(out, is_terminal=False), interrupts=interrupts)
    assert given == code
    assert out.getvalue() == "ab~\n---\nx\n---\npq~"
    assert noted.startswith("minigen: interrupted" if code == 130 else "minigen: terminated")
    assert noted.count("\n") == 1
    assert [(sample.index, sample.finish_reason) for sample in samples] == [
        (0, "interrupted"),
        (1, "stop"),
        (2, "interrupted"),
    ]


def test_a_signal_before_the_first_token_still_gives_a_document() -> None:
    """TTY-4"""
    interrupts = Interrupts()
    interrupts.exit_code = 130
    out = io.StringIO()
    view = DocumentView(out, SHARED, str, does_stream=False, does_inspect=False)
    assert generate(TogetherEngine([["a"], ["b"]]), view, interrupts=interrupts)[0] == 130
    (document,) = map(json.loads, out.getvalue().splitlines())
    assert (document["sample"], document["text"], document["finish_reason"]) == (0, "", "interrupted")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def timed(max_running: int) -> tuple[Generation, list[Sample]]:
    """Three samples of three tokens, where a step takes a second."""
    clock, samples = Clock(), list[Sample]()

    def passing(step: int) -> None:
        clock.now += 1.0

    engine = TogetherEngine([list("abc")] * 3, max_running=max_running, before=passing)
    view = TextView(io.StringIO(), is_terminal=False)
    generation = Generation(
        engine, plan_for(3), view, Notes(io.StringIO()), Interrupts(), clock=clock, report=samples.append
    )
    assert generation.run() == 0
    return generation, samples


@pytest.mark.parametrize(("max_running", "seconds"), [(1, 11.0), (2, 7.0), (3, 3.0)])
def test_waiting_for_a_place_is_not_charged_to_a_sample(max_running: int, seconds: float) -> None:
    """STA-1, STA-2: the speed is a sample's own, and the total is that of all. A text's last step has no token."""
    generation, samples = timed(max_running)
    for sample in samples:
        assert sample.stats.first_token_seconds == 1.0
        assert sample.stats.decode_tokens_per_second == 1.0
        assert sample.stats.total_seconds == 3.0
    assert generation.stats.completion_tokens == 9
    assert generation.stats.total_seconds == seconds
    assert [sample.prefill_tokens_per_second for sample in samples] == [2.0, None, None]


def test_the_statistics_of_several_samples_are_those_of_all() -> None:
    generation, samples = timed(3)
    line = total_line(generation.stats, [(sample.seed, "stop") for sample in samples[:2]] + [(7, "length")], "cpu")
    parts = line.split(" · ")
    assert parts[:4] == ["3 samples", "2 prompt + 9 new tokens", "first token 1.00 s", "over all 3.0 tok/s"]
    assert parts[-2:] == ["seeds 5 to 7", "2 stop, 1 length"]
    assert "prefill" in statistics_line(samples[0], "cpu")
    assert "prefill" not in statistics_line(samples[1], "cpu")


def run_raw(folder: str, *arguments: str) -> int:
    return main(["run", "ab", "--raw", "-m", folder, "--max-new-tokens", "12", *arguments])


@pytest.mark.parametrize("more", [(), ("--top-k", "5", "--repetition-penalty", "1.3"), ("--stop", "a")])
def test_each_text_is_that_of_a_run_alone(
    more: tuple[str, ...], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """RNG-1: sample i of a run with seed s draws as a run with seed s + i."""
    alone = []
    for seed in range(7, 26):
        assert run_raw(folder, "--seed", str(seed), *more) == 0
        alone.append(capsys.readouterr().out)
    assert len(set(alone)) > 9
    assert run_raw(folder, "--seed", "7", "-n", "19", *more) == 0
    said = capsys.readouterr()
    assert said.out == "\n---\n".join(alone)
    assert said.err == ""


@pytest.mark.parametrize("flag", ["--json", "--jsonl"])
def test_documents_carry_the_number_of_their_sample(flag: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raw(folder, "--seed", "7", "-n", "3", flag, "--inspect") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    documents = [record for record in records if record.get("event") in (None, "done")]
    assert [(one["sample"], one["seed"]) for one in documents] == [(0, 7), (1, 8), (2, 9)]
    assert [record["sample"] for record in records] == sorted(record["sample"] for record in records)
    for one in documents:
        Draft202012Validator(JSON_SCHEMA).validate(one)
        events = [each for each in records if each.get("event") == "token" and each["sample"] == one["sample"]]
        if flag == "--jsonl":
            assert "".join(each["text"] for each in events) == one["text"]
        assert "".join(each["text"] for each in one["tokens"]) == one["text"]
        assert (one["timing"]["prefill_tokens_per_second"] is None) is (one["sample"] > 0)


def test_a_trace_of_samples_that_ran_together_draws_again(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "run.trace"
    assert run_raw(folder, "--seed", "7", "-n", "3", "--trace", str(trace), "--json", "--inspect") == 0
    for line in capsys.readouterr().out.splitlines():
        document = json.loads(line)
        assert main(["replay", str(trace), "--sample", str(document["sample"]), "--json"]) == 0
        replayed = json.loads(capsys.readouterr().out)
        assert [token["id"] for token in replayed["tokens"]] == [token["id"] for token in document["tokens"]]
        assert replayed["first_difference"] is None


def test_verbose_tells_of_each_sample_and_of_all(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raw(folder, "--seed", "7", "-n", "2", "-v") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "new tokens" in line]
    assert [line.split(" · ")[0] for line in lines[:2]] == ["2 prompt + 12 new tokens"] * 2
    assert lines[2].startswith("2 samples · 2 prompt + 24 new tokens · first token ")
    assert " · over all " in lines[2]


@pytest.mark.parametrize("more", [(), ("--json",), ("--jsonl",), ("--inspect",)])
def test_a_closed_pipe_ends_all_quietly(more: tuple[str, ...], folder: str) -> None:
    """TTY-1, U22"""
    process = subprocess.Popen(
        [*COMMAND, "run", "ab", "--raw", "-m", folder, "-n", "8", "--top-k", "3", *more, "-q"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0
    assert b"Traceback" not in said
    assert said == b"" or "--inspect" in more


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_whole_document_of_each_that_had_begun(
    number: signal.Signals, code: int, folder: str
) -> None:
    """TTY-4"""
    process = subprocess.Popen(
        [*COMMAND, "run", "ab", "--raw", "-m", folder, "--jsonl", "-n", "1000", "--ignore-eos"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    process.send_signal(number)
    lines += process.stdout.read().splitlines()
    process.stdout.close()
    assert process.wait(60) == code
    done = [record for record in map(json.loads, lines) if record["event"] == "done"]
    assert [one["sample"] for one in done] == list(range(len(done)))
    assert done[-1]["finish_reason"] == "interrupted"
    assert 1 <= sum(one["finish_reason"] == "interrupted" for one in done) <= 16


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that cannot run several sequences together: its attention is of a kind of its own."""
    from transformers import BloomConfig, BloomForCausalLM

    path = tmp_path_factory.mktemp("lonely")
    config = BloomConfig(vocab_size=258, hidden_size=16, n_layer=1, n_head=2, bos_token_id=256, eos_token_id=257)
    BloomForCausalLM(config).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return str(path)


def test_a_model_that_runs_one_at_a_time_says_so_once(lonely: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raw(lonely, "--seed", "7", "-n", "3") == 0
    said = capsys.readouterr()
    assert said.out.count("\n---\n") >= 2
    assert said.err.count("one request at a time") == 1
    assert said.err.count("\n") == 1
    assert run_raw(lonely, "--seed", "7", "-n", "3", "-q") == 0
    quiet = capsys.readouterr()
    assert (quiet.out, quiet.err) == (said.out, "")
    assert run_raw(lonely, "--seed", "7") == 0
    alone = capsys.readouterr()
    assert said.out.startswith(alone.out)
    assert alone.err == ""
