"""The loop of a batch: how far it reads ahead, what it holds, and what its bar shows."""

import gc
import io
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from minigen.cli.batch_earlier import Done, Earlier
from minigen.cli.batch_encoding import LineEncoder
from minigen.cli.batch_input import LineReader
from minigen.cli.batch_loop import FEED, Batch, BatchPlan
from minigen.cli.batch_order import AsFinished, AsRead, Order, Record
from minigen.cli.batch_progress import BatchProgress
from minigen.cli.batch_records import Answering
from minigen.cli.interrupts import Interrupts
from minigen.cli.job import Flags, build_job
from minigen.cli.notes import Notes
from minigen.generation.model import Model
from minigen.generation.params import SamplingParams
from minigen.generation.prompt import Prompt
from minigen.generation.trace import UNINSPECTED, Inspection, Output
from minigen.presets import resolve
from stubs import byte_tokenizer
from test_terminal import Terminal

RUNNING = 4


class ScriptedEngine:
    """Writes one dot a step for each of the oldest requests, up to their max_new_tokens."""

    max_running = RUNNING

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.most = 0

    def add_request(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        inspection: Inspection = UNINSPECTED,
    ) -> str:
        assert not inspection.is_measured, "records tell nothing of single tokens"
        assert sampling_params is not None
        assert request_id is not None
        self.left[request_id] = sampling_params.max_new_tokens
        self.most = max(self.most, len(self.left))
        return request_id

    def has_unfinished_requests(self) -> bool:
        return bool(self.left)

    def step(self) -> list[Output]:
        outputs = []
        for name in list(self.left)[:RUNNING]:
            self.left[name] -= 1
            reason = None if self.left[name] else "length"
            outputs.append(Output(request_id=name, text=".", token_id=46, finish_reason=reason))  # type: ignore[arg-type]  # one of the words
            if reason:
                del self.left[name]
        return outputs


class Endless(io.RawIOBase):
    """A stream of lines that are made as they are read."""

    def __init__(self, line: Callable[[int], dict[str, Any]], count: int) -> None:
        self._line, self._count = line, count
        self.num_read = 0

    def read(self, size: int = -1) -> bytes:
        if self.num_read == self._count:
            return b""
        self.num_read += 1
        return json.dumps(self._line(self.num_read)).encode() + b"\n"


class Sink:
    """Takes records, and looks around at each."""

    def __init__(self, look: Callable[[Mapping[str, Any]], None] = lambda record: None) -> None:
        self._look = look
        self.earlier, self.is_file = Earlier(name="sink"), False
        self.lines: list[int] = []

    def __enter__(self) -> "Sink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self) -> None: ...

    def write(self, record: Mapping[str, Any]) -> None:
        self.lines.append(record["line"])
        self._look(record)

    def put_in_order(self) -> None: ...


@pytest.fixture
def encoder() -> LineEncoder:
    flags = Flags(sampling={}, raw=True, prompt="x", no_stdin=True)
    job = build_job(flags, Notes(io.StringIO()))
    model = Model(network=None, tokenizer=byte_tokenizer(), name="scripted", window=64, vocab_size=258)
    settings = replace(resolve(job.preset, {"mode": "raw"}), mode="raw")
    return LineEncoder(job, model, settings, seed=1, form="json")


def run(
    encoder: LineEncoder, stream: Endless, sink: Sink, order: Order, interrupts: Interrupts | None = None
) -> tuple[int, ScriptedEngine]:
    engine = ScriptedEngine()
    plan = BatchPlan(
        lines=LineReader(stream, "lines"),
        form="json",
        done=Done(sink.earlier),
        encoder=encoder,
        order=order,
        records=sink,
        run={},
    )
    silent = io.StringIO()
    progress = BatchProgress(Notes(silent), silent)
    return Batch(engine, plan, progress, interrupts or Interrupts()).run(), engine


def short(number: int) -> dict[str, Any]:
    return {"prompt": "a", "max_new_tokens": 1 + number % 3}


def long_first(number: int) -> dict[str, Any]:
    return {"prompt": "a", "max_new_tokens": 500 if number == 1 else 1}


def bad(number: int) -> dict[str, Any]:
    return {"prompt": ""} if number > 1 else {"prompt": "a", "max_new_tokens": 500}


@pytest.mark.parametrize("line", [short, long_first, bad])
def test_the_engine_is_fed_a_bounded_number_of_requests(
    encoder: LineEncoder, line: Callable[[int], dict[str, Any]]
) -> None:
    stream = Endless(line, 300)
    furthest = 0

    def look(record: Mapping[str, Any]) -> None:
        nonlocal furthest
        furthest = max(furthest, stream.num_read - len(sink.lines))

    sink = Sink(look)
    code, engine = run(encoder, stream, sink, AsFinished())
    assert code == (1 if line is bad else 0)
    assert sorted(sink.lines) == list(range(1, 301))
    assert engine.most <= FEED * RUNNING
    assert furthest <= FEED * RUNNING + 1


@pytest.mark.parametrize("line", [short, long_first, bad])
def test_in_order_reading_stays_near_the_oldest_unfinished_line(
    encoder: LineEncoder, line: Callable[[int], dict[str, Any]]
) -> None:
    stream = Endless(line, 300)
    furthest = 0

    def look(record: Mapping[str, Any]) -> None:
        nonlocal furthest
        furthest = max(furthest, stream.num_read - record["line"])

    sink = Sink(look)
    run(encoder, stream, sink, AsRead(32))
    assert sink.lines == list(range(1, 301))
    assert furthest <= 32 + 1


def test_what_is_held_does_not_grow_with_the_file(encoder: LineEncoder) -> None:
    """A thousand lines more cost no memory, and no request is left behind."""
    for order in (AsFinished(), AsRead(32)):
        held: dict[int, tuple[int, int]] = {}

        def look(record: Mapping[str, Any], held: dict[int, tuple[int, int]] = held) -> None:
            if record["line"] in (500, 1500):
                gc.collect()
                alive = sum(type(each) is Answering for each in gc.get_objects())
                held[record["line"]] = alive, tracemalloc.get_traced_memory()[0]

        sink = Sink(look)
        tracemalloc.start()
        try:
            run(encoder, Endless(short, 1600), sink, order)
        finally:
            tracemalloc.stop()
        assert held[1500][0] <= FEED * RUNNING
        assert held[1500][1] - held[500][1] < 100_000


def test_at_a_signal_what_has_finished_is_written_and_the_rest_is_left(encoder: LineEncoder) -> None:
    """In order, too: what waits for an older line is done and is not lost."""
    for order in (AsFinished(), AsRead(32)):
        interrupts = Interrupts()

        def interrupted(number: int, interrupts: Interrupts = interrupts) -> dict[str, Any]:
            if number == 10:
                interrupts.exit_code = 130
            return {"prompt": "a", "max_new_tokens": 500 if number in (2, 4) else 1}

        sink = Sink()
        code, engine = run(encoder, Endless(interrupted, 300), sink, order, interrupts)
        assert code == 130
        assert sorted(sink.lines) == [1, 3, 5, 6]
        assert {str(line) for line in sink.lines}.isdisjoint(engine.left)


def test_records_in_order_wait_for_their_turn() -> None:
    order = AsRead(3)
    assert [order.begin() for _ in range(3)] == [0, 1, 2]
    assert not order.has_room()
    records: list[Record] = [{"line": number} for number in (1, 2, 3)]
    assert list(order.finish(2, records[2])) == []
    assert list(order.finish(0, records[0])) == [records[0]]
    assert order.has_room()
    assert list(order.rest()) == [records[2]]
    assert list(order.rest()) == []


# --- the bar


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    screen = Terminal(80, 5)
    monkeypatch.setenv("TERM", "xterm")
    yield screen
    screen.close()


def progress_of(stream: Any, total: int | None, seconds: list[float]) -> BatchProgress:
    return BatchProgress(Notes(stream), stream, total, clock=lambda: seconds[0])


def test_the_bar_shows_requests_speed_and_time_left(terminal: Terminal) -> None:
    seconds = [0.0]
    progress = progress_of(terminal, 200, seconds)
    progress.show()
    assert terminal.sent == ""
    progress.num_before, progress.num_tokens = 20, 1200
    for line in range(30):
        progress.written({"line": line})
    seconds[0] = 60.0
    progress.show()
    assert terminal.lines()[0] == "━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 50/200 · 20.0 tok/s · 5:00 left"
    progress.num_running = 20
    assert progress.bar(36) == "50/200 · 20.0 tok/s · 3:30 left", "what runs is half done on average"
    progress.num_running = 0
    shown = terminal.sent
    progress.show()
    assert terminal.sent == shown, "nothing is drawn twice in a moment"
    seconds[0] = 4000.0
    progress.show()
    assert terminal.lines()[0].endswith("50/200 · 0.3 tok/s · 5:33:20 left")
    progress.end("cpu", 7, is_verbose=False, is_quiet=False)
    text = "".join(terminal.lines())
    assert text.startswith("50 of 200 requests, 20 of them before, 1200 tokens, 0.3 tokens/s, peak ")
    assert text.endswith(", seed 7")


@pytest.mark.parametrize("columns", [80, 40, 20, 1])
def test_the_bar_holds_at_any_width(terminal: Terminal, columns: int) -> None:
    """TTY-14"""
    terminal.resize(columns, 5)
    seconds = [0.0]
    progress = progress_of(terminal, 1_000_000, seconds)
    progress.num_tokens, progress.num_before = 5_000_000, 999_999
    seconds[0] = 1.0
    progress.show()
    assert [line for line in terminal.lines()[1:] if line] == []
    whole = "╌" * 6 + " 0/300 · 0.0 tok/s"
    assert progress_of(terminal, 300, [0.0]).bar(len(whole)) == whole
    assert progress_of(terminal, 300, [0.0]).bar(len(whole) - 1) == whole[7:]


def test_without_a_count_the_bar_shows_the_time(terminal: Terminal) -> None:
    seconds = [0.0]
    progress = progress_of(terminal, None, seconds)
    progress.written({"line": 1, "error": "The prompt is empty."})
    seconds[0] = 65.0
    progress.show()
    assert terminal.lines()[0] == "1 done · 0.0 tok/s · 1:05"


def test_a_bar_is_not_in_the_way_of_who_types(terminal: Terminal) -> None:
    seconds = [0.0]
    progress = BatchProgress(Notes(terminal), terminal, is_typed=True, clock=lambda: seconds[0])
    for at in (5.0, 10.0):
        seconds[0] = at
        progress.show()
        progress.wait("standard input")
    assert terminal.sent == ""


def test_elsewhere_there_is_no_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """TTY-7, U4"""
    monkeypatch.setenv("FORCE_COLOR", "1")
    seconds = [0.0]
    progress = progress_of(sys.stderr, 10, seconds)
    seconds[0] = 60.0
    progress.show()
    progress.end("cpu", 1, is_verbose=False, is_quiet=False)
    assert capsys.readouterr().err == ""


def test_a_wait_is_said_once_and_not_before_it_is_one() -> None:
    said = io.StringIO()
    seconds = [0.0]
    progress = progress_of(said, None, seconds)
    for at, is_said in ((5.0, False), (5.9, False), (6.0, True), (9.0, True)):
        seconds[0] = at
        progress.wait("a pipe")
        assert ("waiting for a pipe" in said.getvalue()) == is_said
    progress.go_on()
    seconds[0] = 20.0
    progress.wait("a pipe")
    assert said.getvalue() == "minigen: waiting for a pipe.\n"


def test_what_a_line_holds_never_steers_the_terminal(terminal: Terminal, tmp_path: Path) -> None:
    """SEC-1"""
    progress = progress_of(terminal, None, [0.0])
    progress.written({"line": 1, "error": "\x1b[2J is not known."})
    progress.end("cpu", 1, is_verbose=False, is_quiet=True)
    assert "\x1b" not in terminal.sent
    assert "\\x1b[2J is not known." in terminal.sent
