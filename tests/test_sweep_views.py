"""What a sweep shows: the loop with an engine that follows a script, its live table, and its results at any width."""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from minigen.cli.escaping import quoted
from minigen.cli.interrupts import Interrupts
from minigen.cli.notes import Notes
from minigen.cli.sweep_live import HiddenView, LiveTable
from minigen.cli.sweep_loop import Sweeping
from minigen.cli.sweep_measures import distinct, first_difference
from minigen.cli.sweep_results import print_results, print_texts, seeds_text
from minigen.cli.sweep_tables import tail_of
from minigen.cli.sweep_texts import Board, Combination, SweptText, summary_of
from minigen.cli.terminal import console_for
from minigen.generation.errors import NumberError
from minigen.generation.params import SamplingParams
from minigen.generation.prompt import Prompt
from minigen.generation.trace import Draw, Output
from rich.cells import cell_len
from rich.console import Console
from test_terminal import Terminal, on_terminal, shown_on_screen, ticks
from tiny_folders import tiny_folder

PROMPT = Prompt((1, 2), (1, 2))
WORDS = [" one", " two", " three", "\n", " 中文", " \x1b[2J", " 👩‍🔬", " [/b]", " end"]


def board_of(seeds: Sequence[int], **axes: Sequence[Any]) -> Board:
    combinations = []
    for index, chosen in enumerate(product(*axes.values())):
        values = dict(zip(axes, chosen, strict=True))
        settings: Any = SimpleNamespace(params=SamplingParams(**values))
        combinations.append(Combination(index=index, values=values, settings=settings, prompt=PROMPT))
    return Board.of(combinations, seeds)


class ScriptedSteps:
    """Writes token `write(params, step)` for every request in each step, up to a number of steps; -1 fails."""

    def __init__(
        self,
        write: Callable[[SamplingParams, int], int],
        *,
        num_steps: int = 4,
        max_running: int = 100,
        before: Callable[[int], None] = lambda step: None,
    ) -> None:
        self.write, self.num_steps, self.max_running, self.before = write, num_steps, max_running, before
        self.open: dict[str, tuple[SamplingParams, int]] = {}
        self.added: list[SamplingParams] = []
        self.ending: list[Output] = []
        self.num_done = 0

    def add_request(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> str:
        assert sampling_params is not None
        request_id = str(len(self.added))
        self.added.append(sampling_params)
        self.open[request_id] = (sampling_params, 0)
        return request_id

    def step(self) -> list[Output]:
        self.num_done += 1
        self.before(self.num_done)
        outputs, self.ending = self.ending, []
        for request_id, (params, place) in list(self.open.items())[: self.max_running]:
            self.open[request_id] = (params, place + 1)
            outputs.append(self._output(request_id, self.write(params, place), place))
            if outputs[-1].finish_reason is not None:
                del self.open[request_id]
        return outputs

    def _output(self, request_id: str, token_id: int, place: int) -> Output:
        if token_id < 0:
            return Output(request_id=request_id, text="", finish_reason="error", error=NumberError("Not numbers."))
        draw = Draw(token_id=token_id, logit=1.0, logprob=-0.5, rank=1, entropy=1.0, final_prob=0.6, u=0.1)
        reason: Any = "length" if place + 1 == self.num_steps else None
        text = WORDS[token_id % len(WORDS)]
        return Output(request_id=request_id, text=text, token_id=token_id, draw=draw, finish_reason=reason)

    def has_unfinished_requests(self) -> bool:
        return bool(self.open or self.ending)

    def abort_request(self, request_id: str) -> None:
        self.open.pop(request_id)
        self.ending.append(Output(request_id=request_id, text="", finish_reason="interrupted"))


def swept(engine: ScriptedSteps, board: Board, view: Any = None, interrupts: Interrupts | None = None) -> Any:
    """Run a board; give the exit code, what was noted, and the texts in the order in which they ended."""
    err, ended = io.StringIO(), list[SweptText]()
    sweeping = Sweeping(
        engine, board, view or HiddenView(), Notes(err), interrupts or Interrupts(), report=ended.append
    )
    return sweeping.run(), err.getvalue(), ended


def by_temperature(params: SamplingParams, step: int) -> int:
    """Write 0, 1, 2 …, and from the step that is ten times the temperature on something else."""
    return step if step < 10 * params.temperature else step + 4


class Labels:
    def label(self, token_id: int) -> str:
        return quoted(WORDS[token_id % len(WORDS)])


def text_of(ids: Sequence[int]) -> str:
    return "".join(WORDS[token_id % len(WORDS)] for token_id in ids)


# --- the loop


def test_texts_of_one_seed_start_side_by_side() -> None:
    board = board_of([7, 8], temperature=[0.5, 1.0], top_k=[0, 3])
    engine = ScriptedSteps(by_temperature)
    code, noted, ended = swept(engine, board)
    assert (code, noted, len(ended)) == (0, "", 8)
    grid = [(0.5, 0), (0.5, 3), (1.0, 0), (1.0, 3)]
    added = [(params.temperature, params.top_k, params.seed) for params in engine.added]
    assert added == [(*each, seed) for seed in (7, 8) for each in grid]


def test_one_failing_text_fails_alone() -> None:
    """BAT-4"""

    def failing(params: SamplingParams, step: int) -> int:
        return -1 if params.temperature == 0.5 and params.seed == 8 and step == 2 else step

    board = board_of([7, 8], temperature=[0.3, 0.5])
    code, noted, ended = swept(ScriptedSteps(failing), board)
    assert (code, noted) == (1, "minigen: seed 8 of combination 2 · temperature 0.5: Not numbers.\n")
    assert [(text.seed, text.finish_reason, text.token_ids) for text in board.texts[1]] == [
        (7, "length", [0, 1, 2, 3]),
        (8, "error", [0, 1]),
    ]
    assert len(ended) == 4
    summary = summary_of(board.texts[1], board.texts[0], board.seeds)
    assert (summary.num_tokens, summary.finish_reasons) == (6, {"length": 1, "error": 1})


@pytest.mark.parametrize("code", [130, 143])
def test_a_signal_ends_all_texts_and_keeps_those_that_began(code: int) -> None:
    """TTY-4"""
    interrupts = Interrupts()

    def signalled(step: int) -> None:
        interrupts.exit_code = code if step == 2 else interrupts.exit_code

    board = board_of([7, 8], temperature=[0.3, 0.5])
    engine = ScriptedSteps(by_temperature, max_running=3, before=signalled)
    given, noted, ended = swept(engine, board, interrupts=interrupts)
    assert given == code
    assert noted.startswith("minigen: interrupted; the texts so far" if code == 130 else "minigen: terminated")
    assert [(text.combination, text.seed, text.finish_reason) for text in ended] == [
        (0, 7, "interrupted"),
        (1, 7, "interrupted"),
        (0, 8, "interrupted"),
    ]
    assert [len(text.token_ids) for text in ended] == [2, 2, 2]
    summary = summary_of(board.texts[1], board.texts[0], board.seeds)
    assert (summary.num_texts, summary.num_compared) == (1, 1)


# --- measures


@pytest.mark.parametrize(
    ("texts", "shares"),
    [
        ([], [None, None]),
        ([[]], [None, None]),
        ([[1]], [1.0, None]),
        ([[1, 1, 1]], [1 / 3, 1 / 2]),
        ([[1, 2], [2, 1]], [0.5, 1.0]),
        ([[1, 2, 1, 2]], [0.5, 2 / 3]),
    ],
)
def test_distinct_counts_n_grams_within_texts(texts: list[list[int]], shares: list[float | None]) -> None:
    assert [distinct(texts, 1), distinct(texts, 2)] == shares


def test_a_difference_is_sought_as_far_as_both_texts_go() -> None:
    assert first_difference([1, 2, 3], [1, 2, 4]) == 2
    assert first_difference([1, 2], [1, 2, 4]) is None
    assert first_difference([], [1]) is None
    assert first_difference([0], [1]) == 0


# --- results


def results(board: Board, width: int, *, shows_texts: bool = False) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, legacy_windows=False)
    summaries = [summary_of(texts, board.texts[0], board.seeds) for texts in board.texts]
    if shows_texts:
        print_texts(board, summaries, console, text_of)
    print_results(board, summaries, console, Labels(), text_of)
    return stream.getvalue().splitlines()


@pytest.fixture
def parted() -> Board:
    """Three combinations; the second parts from the first in its fourth token, with both seeds."""
    board = board_of([3, 4], temperature=[0.5, 0.3], top_p=[0.9])
    swept(ScriptedSteps(by_temperature, num_steps=5), board)
    return board


def test_results_at_fixed_widths(parted: Board) -> None:
    """TTY-14: what is needed least goes first, then names are cut."""
    assert results(parted, 80) == [
        "   temperature  top_p    log p  dist-1  dist-2  tokens  ended   parts at",
        "1          0.5    0.9  -0.5000  0.5000  0.5000     5.0  length     first",
        "2          0.3    0.9  -0.5000  0.5000  0.5000     5.0  length         4",
        "",
        '2 parts at token 4 with seed 3: "\\n" became " [/b]", after " one two three"',
        "",
        "4 texts · 20 tokens · seeds 3, 4",
    ]
    assert results(parted, 40) == [
        "  temp… top_p   log p dist-2 parts",
        "1   0.5   0.9 -0.5000 0.5000 first",
        "2   0.3   0.9 -0.5000 0.5000     4",
        "",
        '2 parts at token 4 with seed 3: "\\n"',
        '  became " [/b]", after " one two three"',
        "",
        "4 texts · 20 tokens · seeds 3, 4",
    ]
    assert results(parted, 20) == [
        "  te… to…   log p",
        "1 0.5 0.9 -0.5000",
        "2 0.3 0.9 -0.5000",
        "",
        "2 parts at token 4",
        '  with seed 3: "\\n"',
        '  became " [/b]",',
        "  after",
        '  " one two three"',
        "",
        "4 texts · 20 tokens",
        "seeds 3, 4",
    ]


def test_values_that_have_no_room_are_listed() -> None:
    """TTY-14"""
    board = board_of([3], temperature=[0.5], top_p=[0.9], repetition_penalty=[1, 1.25], min_p=[0])
    swept(ScriptedSteps(by_temperature), board)
    assert results(board, 20)[:10] == [
        "    log p parts",
        "1 -0.5000 first",
        "2 -0.5000     -",
        "",
        "1 · temperature 0.5",
        "  · top_p 0.9 ·",
        "  repetition_penalty",
        "  1 · min_p 0",
        "2 · temperature 0.5",
        "  · top_p 0.9 ·",
    ]


@pytest.mark.parametrize("width", [1, 2, 5, 10, 20, 40, 59, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_screen(parted: Board, width: int) -> None:
    """TTY-13, MKP-1, SEC-1"""
    for line in results(parted, width):
        assert cell_len(line) <= width
        assert "\x1b" not in line


def test_some_seeds_part_and_some_do_not() -> None:
    def write(params: SamplingParams, step: int) -> int:
        return step + (params.temperature == 0.7 and params.seed == 4 and step == 2)

    board = board_of([3, 4, 5, 9], temperature=[0.5, 0.7, 0.8])
    swept(ScriptedSteps(write), board)
    lines = results(board, 100)
    assert [line.split()[-2:] for line in lines[1:4]] == [["length", "first"], ["3", "(1/4)"], ["length", "-"]]
    assert lines[5:] == ['2 parts at token 3 with seed 4: " three" became "\\n", after " one two"', "", *lines[-1:]]
    assert lines[-1] == "12 texts · 48 tokens · seeds 3, 4, 5, 9"


def test_texts_are_shown_with_what_they_share_dimmed(parted: Board) -> None:
    """SEC-1, MKP-1"""
    lines = results(parted, 80, shows_texts=True)
    assert lines[:13] == [
        "1 · temperature 0.5 · top_p 0.9",
        "-- seed 3 · 5 tokens · length",
        " one two three",
        " 中文",
        "-- seed 4 · 5 tokens · length",
        " one two three",
        " 中文",
        "",
        "2 · temperature 0.3 · top_p 0.9",
        "-- seed 3 · 5 tokens · length · parts at token 4",
        " one two three [/b] end",
        "-- seed 4 · 5 tokens · length · parts at token 4",
        " one two three [/b] end",
    ]
    stream = io.StringIO()
    console = Console(file=stream, width=80, color_system="standard", force_terminal=True, legacy_windows=False)
    summaries = [summary_of(texts, parted.texts[0], parted.seeds) for texts in parted.texts]
    print_texts(parted, summaries, console, text_of)
    assert "\x1b[2m one two three\x1b[0m [/b] end\n" in stream.getvalue()


def test_seeds_are_named_shortly() -> None:
    assert seeds_text([3]) == "seed 3"
    assert seeds_text([3, 4]) == "seeds 3, 4"
    assert seeds_text([3, 4, 5]) == "seeds 3 to 5"
    assert seeds_text([3, 5, 9]) == "seeds 3, 5, 9"
    assert seeds_text([*range(0, 20, 2)]) == "seeds 0, 2, 4, 6, 8, 10, 12, 14 … (10)"


def test_the_end_of_a_text_fits_its_column() -> None:
    assert tail_of("short", 10) == "short"
    assert tail_of("a longer text", 8) == "…er text"
    assert tail_of("中文中文中文", 6) == "…中文"
    assert tail_of("a\nb\x1b[2J", 20) == "a\\nb\\x1b[2J"
    for width in range(1, 30):
        assert cell_len(tail_of("x👩‍🔬e\u0301中\x1b\n" * 9, width)) <= width


# --- the live table


@pytest.fixture
def usual() -> Iterator[Terminal]:
    terminal = Terminal(80, 24)
    yield terminal
    terminal.close()


def live_screens(terminal: Terminal, board: Board, engine: ScriptedSteps) -> list[list[str]]:
    """Run a board with the live table, redrawn at every step; give the screen before each step."""
    screens: list[list[str]] = []
    engine.before = lambda step: screens.append([line.rstrip() for line in terminal.screen.display])
    swept(engine, board, LiveTable(console_for(terminal, "never"), clock=ticks()))
    return screens


def test_the_table_lives_while_texts_are_written_and_goes(usual: Terminal) -> None:
    board = board_of([3, 4], temperature=[0.5, 0.3], top_p=[0.9])
    screens = live_screens(usual, board, ScriptedSteps(by_temperature, max_running=3))
    assert screens[3][0].startswith("0 of 4 texts · 9 tokens · ")
    assert screens[3][1:5] == [
        "   temperature  top_p  texts  tokens    log p",
        "1          0.5    0.9    0/2       6  -0.5000   one two three",
        "2          0.3    0.9    0/2       3  -0.5000   one two three",
        "",
    ]
    assert screens[4][0].startswith("3 of 4 texts · 12 tokens")
    assert screens[4][2].startswith("1          0.5    0.9    2/2       8")
    assert not any(usual.lines())
    assert usual.sent.count("\x1b[?25l") == usual.sent.count("\x1b[?25h") == 1


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 5), (20, 24), (3, 2), (1, 1)])
def test_the_table_fits_any_screen(size: tuple[int, int]) -> None:
    """TTY-13, TTY-14, SEC-1: no row wraps, nothing scrolls, and combinations that are being written stay in sight."""
    terminal = Terminal(*size)
    board = board_of([3, 4], temperature=[0.1, 0.2, 0.3, 0.4, 0.5], top_p=[0.8, 0.9, 1.0], repetition_penalty=[1, 1.5])
    screens = live_screens(terminal, board, ScriptedSteps(by_temperature, num_steps=9, max_running=20))
    assert size[1] < 2 or not any(terminal.screen.history.top)
    assert terminal.screen.title == ""
    for screen in screens[1:]:
        assert " of " in screen[0] or size[0] < 20
        if size[1] >= 5:
            rows = [line.split()[0] for line in screen[2:] if line]
            assert len(rows) == min(size[1] - 3, 30)
            assert rows == sorted(rows, key=int)
    terminal.close()


def test_running_combinations_are_in_sight(usual: Terminal) -> None:
    board = board_of([3], top_k=[*range(40)])
    screens = live_screens(usual, board, ScriptedSteps(lambda params, step: step, max_running=5))
    rows = [line.split()[0] for line in screens[-1][2:] if line]
    assert {"36", "37", "38", "39", "40"} <= {*rows}
    assert len(rows) == 21


def test_little_is_drawn_for_many_steps(usual: Terminal) -> None:
    """TTY-12: redraws are bound by time, not by tokens."""
    board = board_of([3], top_k=[0, 1])
    view = LiveTable(console_for(usual, "never"), clock=lambda: 0.0)
    swept(ScriptedSteps(lambda params, step: step, num_steps=500), board, view)
    assert usual.sent.count("top_k") == 1


def test_the_command_draws_a_live_table_and_then_its_results(tmp_path: Path) -> None:
    """TTY-2, TTY-19"""
    folder = tiny_folder(tmp_path)
    grid = ["-t", "0.5,1", "--seeds", "2", "--seed", "3", "--max-new-tokens", "40", "--ignore-eos"]
    code, sent = on_terminal("sweep", "ab", "--raw", "-m", str(folder), *grid)
    assert code == 0
    assert "of 4 texts · " in sent
    lines = shown_on_screen(sent)
    title = next(i for i, line in enumerate(lines) if line.split()[0] == "temperature")
    assert [line.split()[0] for line in lines[title + 1 : title + 3]] == ["1", "2"]
    assert re.fullmatch(r"4 texts · 160 tokens · seeds 3, 4 · [\d.]+ s · [\d.]+ tok/s", lines[-1])
    assert sent.count("160 tokens · seeds") == sent.count("tok/s\r\n") == 1
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h")


def test_ctrl_c_on_a_terminal_sums_up_what_is_there(tmp_path: Path) -> None:
    """U21, TTY-2, TTY-4"""
    folder = tiny_folder(tmp_path)
    grid = ["-t", "0.5,1", "--seeds", "400", "--max-new-tokens", "100", "--ignore-eos"]
    code, sent = on_terminal("sweep", "ab", "--raw", "-m", str(folder), *grid, signal_at=b"of 800 texts")
    assert code == 130
    lines = shown_on_screen(sent)
    assert any("interrupted" in line for line in lines)
    assert any(line.startswith("minigen: interrupted; the texts so far are kept.") for line in lines)
    assert any(" texts · " in line and " tokens · seeds " in line for line in lines)
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h")


def test_no_lines_of_json_meet_the_live_table(tmp_path: Path) -> None:
    """TTY-7: on a terminal they stand alone, and beside a file the table shows how far they are."""
    folder = tiny_folder(tmp_path / "model")
    grid = ["-t", "0.5,1", "--seed", "3", "--max-new-tokens", "40", "--ignore-eos", "--jsonl"]
    code, sent = on_terminal("sweep", "ab", "--raw", "-m", str(folder), *grid)
    assert code == 0
    assert "of 2 texts" not in sent
    assert "\x1b[?25l" not in sent
    lines = [line for line in sent.replace("\r", "\n").split("\n") if line.startswith(("{", "\x1b[K{"))]
    assert len(lines) == 4
    code, sent = on_terminal("sweep", "ab", "--raw", "-m", str(folder), *grid, "-o", str(tmp_path / "lines"))
    assert code == 0
    assert "of 2 texts" in sent
    assert len((tmp_path / "lines").read_text("utf-8").splitlines()) == 4
