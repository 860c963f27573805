"""The views, and the loop that feeds them, with an engine that follows a script."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from minigen.cli.generating import Generation, Plan
from minigen.cli.interrupts import Interrupts
from minigen.cli.notes import Notes
from minigen.cli.open_line import OpenLine
from minigen.cli.painting import Piece
from minigen.cli.samples import Sample
from minigen.cli.terminal import may_color, may_redraw
from minigen.cli.views import TableView, TextView
from minigen.generation.errors import NumberError
from minigen.generation.params import SamplingParams
from minigen.generation.prompt import Prompt
from minigen.generation.ranges import MAX_SEED
from minigen.generation.trace import UNINSPECTED, Candidate, Draw, Inspection, Output
from rich.console import Console


class ScriptedEngine:
    """Gives the pieces of a text, one a step; then what `last` says. Requests come one after the other."""

    max_running = 1

    def __init__(self, pieces: Sequence[str], *, before: Callable[[int], None] = lambda step: None, **last: Any):
        self.pieces, self.before = list(pieces), before
        self.last = last or {"finish_reason": "stop", "stop": 0}
        self.seeds: list[int | None] = []
        self.requests: dict[str, list[Output]] = {}  # what each that has not ended has left to give

    @property
    def left(self) -> list[Output]:
        """What the first request has left to give."""
        return next(iter(self.requests.values()), [])

    def add_request(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        inspection: Inspection = UNINSPECTED,
    ) -> str:
        assert sampling_params is not None
        request_id = str(len(self.seeds))
        self.seeds.append(sampling_params.seed)
        outputs = [self._output(i, piece) for i, piece in enumerate(self.pieces)]
        outputs.append(Output(request_id=request_id, text="", **self.last))
        self.requests[request_id] = [replace(output, request_id=request_id) for output in outputs]
        return request_id

    def _output(self, step: int, piece: str) -> Output:
        one = Candidate(token_id=step, logit=1.0, logprob=-0.7, final_prob=0.6, dropped_by=None)
        draw = Draw(
            token_id=step, logit=1.0, logprob=-0.7, rank=1, entropy=1.0, final_prob=0.6, u=0.1, candidates=(one,)
        )
        return Output(request_id="0", text=piece, token_id=step, draw=draw)

    def step(self) -> list[Output]:
        self.before(len(self.pieces) + 1 - len(self.left))
        output = self.left.pop(0)
        self.requests = {name: left for name, left in self.requests.items() if left}
        return [output]

    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)

    def abort_request(self, request_id: str) -> None:
        has_begun = len(self.requests[request_id]) <= len(self.pieces)
        text = "(held)" if has_begun else ""
        self.requests[request_id] = [Output(request_id=request_id, text=text, finish_reason="interrupted")]

    def num_cached(self, request_id: str) -> int:
        return 0

    def seed_of(self, request_id: str) -> int:
        seed = self.seeds[int(request_id)]
        return 41 if seed is None else seed


class Labels:
    def label(self, token_id: int) -> str:
        return f'"{token_id}"'


PLAN = Plan(prompt=Prompt((1, 2), (1, 2)), params=SamplingParams())


def run(
    engine: ScriptedEngine, view: Any, plan: Plan = PLAN, interrupts: Interrupts | None = None
) -> tuple[int, str, list[Sample]]:
    """Run a plan; give the exit code, what was noted, and the samples."""
    err, samples = io.StringIO(), list[Sample]()
    generation = Generation(engine, plan, view, Notes(err), interrupts or Interrupts(), report=samples.append)
    return generation.run(), err.getvalue(), samples


def test_a_pipe_gets_the_text_and_nothing_else() -> None:
    """TTY-8, SEC-1, MKP-1: exact bytes, no newline at the end."""
    pieces = ["x" * 200, " \t", "[/INST]", "\x1b[2J", " "]
    out = io.StringIO()
    assert run(ScriptedEngine(pieces), TextView(out, is_terminal=False))[0] == 0
    assert out.getvalue() == "".join(pieces)


def test_a_terminal_gets_visible_characters_and_a_last_newline() -> None:
    """SEC-1"""
    out = io.StringIO()
    run(ScriptedEngine(["a\x1b", "[2J\r", "b"]), TextView(out, is_terminal=True))
    assert out.getvalue() == "a\\x1b[2J\\rb\n"


@pytest.mark.parametrize(
    ("is_terminal", "text"), [(False, "one\n\n---\none\n\n---\none\n"), (True, "one\n---\none\n---\none\n")]
)
def test_samples_are_parted(is_terminal: bool, text: str) -> None:
    out = io.StringIO()
    plan = Plan(prompt=PLAN.prompt, params=PLAN.params, num_samples=3)
    run(ScriptedEngine(["one\n"]), TextView(out, is_terminal=is_terminal), plan)
    assert out.getvalue() == text


def test_each_piece_is_flushed() -> None:
    """TTY-18"""
    seen: list[str] = []

    class Flushed(io.StringIO):
        def flush(self) -> None:
            seen.append(self.getvalue())

    run(ScriptedEngine(["a", "b"]), TextView(Flushed(), is_terminal=False))
    assert seen == ["a", "ab"]


def test_later_samples_count_on_from_the_seed() -> None:
    plan = Plan(prompt=PLAN.prompt, params=SamplingParams(seed=MAX_SEED), num_samples=3)
    engine = ScriptedEngine(["a"])
    run(engine, TextView(io.StringIO(), is_terminal=False), plan)
    assert engine.seeds == [MAX_SEED, 0, 1]


def test_samples_without_a_seed_count_on_from_the_chosen_one() -> None:
    plan = Plan(prompt=PLAN.prompt, params=SamplingParams(), num_samples=3)
    engine = ScriptedEngine(["a"])
    _, _, samples = run(engine, TextView(io.StringIO(), is_terminal=False), plan)
    assert engine.seeds == [None, 42, 43]
    assert [sample.seed for sample in samples] == [41, 42, 43]


@pytest.mark.parametrize("code", [130, 143])
def test_a_signal_ends_the_text_after_the_step_and_keeps_it(code: int) -> None:
    """TTY-4"""
    interrupts = Interrupts()

    def signalled(step: int) -> None:
        interrupts.exit_code = code if step == 1 else interrupts.exit_code

    out = io.StringIO()
    plan = Plan(prompt=PLAN.prompt, params=PLAN.params, num_samples=2)
    engine = ScriptedEngine(["a", "b", "c"], before=signalled)
    given, noted, samples = run(engine, TextView(out, is_terminal=False), plan, interrupts)
    assert given == code
    assert out.getvalue() == "ab(held)"
    assert noted.startswith("minigen: interrupted" if code == 130 else "minigen: terminated")
    assert [(sample.finish_reason, sample.stats.completion_tokens) for sample in samples] == [("interrupted", 2)]


def test_an_error_ends_its_sample_alone_and_keeps_the_text() -> None:
    """TTY-5, SMP-19"""
    out = io.StringIO()
    engine = ScriptedEngine(["a", "b"], finish_reason="error", error=NumberError("Not numbers at token 3."))
    plan = Plan(prompt=PLAN.prompt, params=PLAN.params, num_samples=2)
    code, noted, samples = run(engine, TextView(out, is_terminal=False), plan)
    assert (code, out.getvalue()) == (1, "ab\n---\nab")
    assert noted.splitlines() == [f"minigen: sample {i} of 2: Not numbers at token 3." for i in (1, 2)]
    assert len(samples) == 2


def test_a_closed_pipe_stops_the_steps_at_once() -> None:
    """TTY-1"""

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    engine = ScriptedEngine(["a", "b", "c"])
    with pytest.raises(BrokenPipeError):
        run(engine, TextView(Closed(), is_terminal=False))
    assert len(engine.left) == 3


def test_tables_go_elsewhere_than_the_text() -> None:
    """TTY-7"""
    out, err = io.StringIO(), io.StringIO()
    console = Console(file=err, width=40, color_system=None)
    run(ScriptedEngine(["a", "b"]), TableView(TextView(out, is_terminal=False), console, Labels()))
    assert out.getvalue() == "ab"
    assert err.getvalue().split("\n") == [
        "",
        'token 1: "0"  rank 1, entropy 1.00, sur…',
        "  token         raw p final p dropped by",
        '> "0"          0.4966  0.6000',
        "",
        'token 2: "1"  rank 1, entropy 1.00, sur…',
        "  token         raw p final p dropped by",
        '> "1"          0.4966  0.6000',
        "",
    ]


def open_line(*texts: str) -> OpenLine:
    line = OpenLine()
    for text in texts:
        line.add(Piece(text))
    return line


def last_rows(line: OpenLine, columns: int, count: int = 9) -> list[str]:
    return ["".join(piece.text for piece in row) for row in line.last_rows(columns, count)]


def test_an_open_line_wraps_as_it_grows_and_anew_at_another_width() -> None:
    """TTY-11: joined emoji count as a terminal without joining would draw them."""
    line = open_line("abcd", "efg")
    assert last_rows(line, 5) == ["abcde", "fg"]
    line.add(Piece("hij中"))
    assert last_rows(line, 5) == ["abcde", "fghij", "中"]
    assert last_rows(line, 8) == ["abcdefgh", "ij中"]
    assert last_rows(line, 8, 1) == ["ij中"]
    assert last_rows(open_line("👩‍🔬❤️"), 4) == ["👩‍🔬", "❤️"]
    assert "".join(piece.text for piece in line.pieces) == "abcdefghij中"


def test_pieces_of_an_open_line_keep_their_styles_over_rows() -> None:
    line = OpenLine()
    for piece in (Piece("abcd", "red"), Piece("", "bold"), Piece("ef中", "blue")):
        line.add(piece)
    rows = [[piece for piece in row if piece.text] for row in line.last_rows(3, 9)]
    assert rows == [[("abc", "red")], [("d", "red"), ("ef", "blue")], [("中", "blue")]]


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize(
    ("choice", "environ", "on_terminal", "in_pipe"),
    [
        ("auto", {}, True, False),
        ("auto", {"NO_COLOR": ""}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ("auto", {"FORCE_COLOR": "1", "CLICOLOR": "0", "TERM": "dumb"}, True, True),
        ("auto", {"FORCE_COLOR": ""}, True, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, True, True),
        ("auto", {"CLICOLOR": "0"}, False, False),
        ("auto", {"TERM": "dumb"}, False, False),
        ("auto", {"GITHUB_ACTIONS": "1", "PY_COLORS": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, True, True),
        ("never", {"FORCE_COLOR": "1"}, False, False),
    ],
)
def test_colour_follows_flag_then_variables_then_the_stream(
    choice: Any, environ: dict[str, str], on_terminal: bool, in_pipe: bool, is_terminal: bool
) -> None:
    """U3"""
    assert may_color(Stream(is_terminal), choice, environ) is (on_terminal if is_terminal else in_pipe)


def test_only_a_terminal_is_redrawn() -> None:
    """U4"""
    assert may_redraw(Stream(True), {"NO_COLOR": "1"})
    assert not may_redraw(Stream(False), {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "1"})
    assert not may_redraw(Stream(True), {"TERM": "dumb"})
