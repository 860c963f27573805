"""The live view of samples that run together: what a terminal shows, on a screen in memory and on a real one."""

import io
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from minigen.cli.generating import Generation, Plan
from minigen.cli.interrupts import Interrupts
from minigen.cli.many_texts import ManyTexts
from minigen.cli.notes import Notes
from minigen.cli.terminal import console_for
from minigen.cli.views import TextView
from minigen.cli.wrapping import GrowingText, wrapped
from minigen.generation.errors import NumberError
from minigen.generation.ranges import MAX_SEED
from rich.cells import cell_len
from stubs import byte_tokenizer, scripted_folder
from test_live import PLAN
from test_terminal import ODD, Terminal, on_terminal, shown_on_screen, ticks
from tiny_folders import tiny_folder
from together import END, TogetherEngine

SIZES = [(120, 30), (80, 24), (40, 10), (20, 5)]


class Screen(Terminal):
    """A terminal that tells where its columns are."""

    def columns_of(self, char: str) -> set[int]:
        """Give the columns in which rows have a character for the first time."""
        rows = [[cell.data for _, cell in sorted(row.items())] for row in self.screen.buffer.values()]
        return {row.index(char) for row in rows if char in row}


@pytest.fixture(params=SIZES, ids=str)
def terminal(request: pytest.FixtureRequest) -> Iterator[Screen]:
    terminal = Screen(*request.param)
    yield terminal
    terminal.close()


@pytest.fixture
def usual() -> Iterator[Screen]:
    terminal = Screen(80, 24)
    yield terminal
    terminal.close()


def show(
    terminal: Screen,
    engine: TogetherEngine,
    *,
    seed: int = 7,
    clock: Callable[[], float] | None = None,
    interrupts: Interrupts | None = None,
) -> int:
    """Run an engine on the live view of a terminal, redrawn at every step unless a clock is given."""
    params = replace(PLAN.params, seed=seed)
    plan = Plan(prompt=PLAN.prompt, params=params, num_samples=len(engine.texts), does_show_draws=False)
    text = TextView(terminal, is_terminal=True)
    view = ManyTexts(text, console_for(terminal, "never"), plan.num_samples, clock=clock or ticks())
    return Generation(engine, plan, view, Notes(io.StringIO()), interrupts or Interrupts(), overview=view).run()


def screens_of(terminal: Screen, engine: TogetherEngine, **more: Any) -> list[list[str]]:
    """Run an engine; give what the screen showed at the beginning of each step."""
    screens: list[list[str]] = []
    engine._before = lambda step: screens.append([line.rstrip() for line in terminal.screen.display])
    show(terminal, engine, **more)
    return screens


def left_on(terminal: Screen) -> list[str]:
    """Everything that can be seen at the end, without the empty rows beneath."""
    lines = terminal.lines()
    while lines and not lines[-1]:
        lines.pop()
    return lines


def wrapped_by_terminal(text: str, columns: int) -> list[str]:
    return [row.rstrip() for line in text.split("\n") for row in _rows(line, columns)]


def _rows(line: str, columns: int) -> list[str]:
    return [line[i : i + columns] for i in range(0, max(len(line), 1), columns)]


WORDS = [[f"{i}w{k} " for k in range(30)] for i in range(4)]


def test_texts_stand_side_by_side_under_their_seeds(usual: Screen) -> None:
    screens = screens_of(usual, TogetherEngine([["one "] * 9, ["two "] * 9, ["three\n"] * 3 + ["x"] * 6]))
    assert screens[3][:5] == [
        "sample 1 of 3 · seed 7     sample 2 of 3 · seed 8     sample 3 of 3 · seed 9",
        "one one one                two two two                three",
        "                                                      three",
        "                                                      three",
        "",
    ]
    assert screens[8][1:3] == [
        "one one one one one one    two two two two two two    three",
        "one one                    two two                    three",
    ]


def test_narrow_screens_have_them_one_below_the_other() -> None:
    terminal = Screen(40, 12)
    screens = screens_of(terminal, TogetherEngine([["one "] * 30, ["two\n"] * 30]))
    assert screens[2][:6] == [
        "sample 1 of 2 · seed 7",
        "one one",
        "sample 2 of 2 · seed 8",
        "two",
        "two",
        "",
    ]
    assert screens[29][:11] == [
        "sample 1 of 2 · seed 7",
        *(["one one one one one one one one one one"] * 2),
        "one one one one one one one one one",
        "sample 2 of 2 · seed 8",
        *["two"] * 5,
        "",
    ]
    terminal.close()


def test_at_the_end_the_texts_stand_whole_and_in_order(terminal: Screen) -> None:
    """TTY-9: each line once, scrolled off or not, parted as in a pipe."""
    order = random.Random(3)
    texts = [[f"{i}-{k} word " + "\n" * (k % 5 == 4) for k in range(10 + 7 * i)] for i in range(6)]
    engine = TogetherEngine(
        texts, max_running=4, pick=lambda running: order.sample(running, order.randint(1, len(running)))
    )
    assert show(terminal, engine) == 0
    whole = "\n---\n".join("".join(pieces).removesuffix("\n") for pieces in texts)
    assert left_on(terminal) == wrapped_by_terminal(whole, terminal.screen.columns)


def test_more_samples_than_fit_are_counted(terminal: Screen) -> None:
    screens = screens_of(terminal, TogetherEngine([[f"{i} "] * 8 for i in range(40)], max_running=16))
    middle = screens[4]
    headings = [line for line in middle if "seed" in line]
    shown = sum(line.count("seed") for line in headings)
    note = next(line for line in middle if line.startswith("and "))
    assert 1 <= shown <= 16
    expected = "and " + ", ".join(([f"{16 - shown} more running"] if shown < 16 else []) + ["24 waiting"])
    assert note == (expected if len(expected) < terminal.screen.columns else expected.split(",")[0])
    assert shown == {120: 16, 80: 15, 40: 2, 20: 1}[terminal.screen.columns]


def test_what_has_ended_gives_its_place_to_what_runs() -> None:
    terminal = Screen(20, 10)
    screens = screens_of(terminal, TogetherEngine([["a"] * 9, ["b"], ["c"] * 9, ["d"] * 9], max_running=3))
    assert [line for line in screens[6] if line] == [
        "1 · seed 7",
        "aaaaaa",
        "3 · seed 9",
        "cccccc",
        "and 1 more running",
    ]
    terminal.close()


def test_a_text_that_waits_for_its_turn_says_how_it_ended(usual: Screen) -> None:
    failed = {"finish_reason": "error", "error": NumberError("No.")}
    screens = screens_of(usual, TogetherEngine([["a"] * 9, ["b"], ["c"]], endings=[END, END, failed]))
    assert "sample 1 of 3 · seed 7     2 · seed 8 · stop          3 · seed 9 · error" in screens[5]
    assert left_on(usual) == ["a" * 9, "---", "b", "---", "c"]


@pytest.mark.parametrize("size", [*SIZES, (24, 2), (26, 1), (1, 1), (1, 5), (3, 2)])
def test_no_row_is_wider_than_the_screen_and_nothing_steers(size: tuple[int, int]) -> None:
    """TTY-11, TTY-13, TTY-14, SEC-1, MKP-1: CJK, emoji, combining and control characters."""
    terminal = Screen(*size)
    screens = screens_of(terminal, TogetherEngine([ODD, ["x" * 50, *ODD], ODD[3:], ["中" * 99]]), seed=MAX_SEED - 1)
    for before, after in pairwise(screens):
        assert len(after) == len(before) == size[1]
    assert terminal.screen.title == ""
    assert "\x1b[2J" not in terminal.sent
    assert "\x9b" not in terminal.sent
    assert "\x1b]0" not in terminal.sent
    if min(size) > 2:
        assert screens[5][-1] == "", "the last row stays free, so that nothing scrolls"
    terminal.close()


def test_a_row_never_reaches_into_the_next_text(usual: Screen) -> None:
    """TTY-13: where terminals disagree about a width, the next text still begins in its column."""
    places: list[set[int]] = []
    texts = [["👩‍🔬❤️👍🏽🇳🇱e\u0301 "] * 20, ["|||\n"] * 20]
    show(usual, TogetherEngine(texts, before=lambda step: places.append(usual.columns_of("|"))))
    assert places[2:20] == [{40}] * 18


@pytest.mark.parametrize("sizes", [[(80, 24), (40, 10), (120, 30)], [(40, 10), (20, 5)], [(20, 5), (120, 30)]])
def test_a_resize_doubles_no_line(sizes: list[tuple[int, int]]) -> None:
    """TTY-11"""
    terminal = Screen(*sizes[0])
    steps = {20 * (i + 1): size for i, size in enumerate(sizes[1:])}
    texts = [[f"{i}.{k}\n" if k % 7 == 0 else "word " for k in range(70)] for i in range(4)]

    def resized(step: int) -> None:
        if step in steps:
            terminal.resize(*steps[step])

    engine = TogetherEngine(texts, before=resized)
    assert show(terminal, engine) == 0
    marks = [line for line in left_on(terminal) if re.fullmatch(r"(word )*\d\.\d+", line.strip())]
    named = [re.search(r"\d\.\d+", line) for line in marks]
    expected = [f"{i}.{k}" for i in range(4) for k in range(70) if k % 7 == 0]
    assert [one[0] for one in named if one] == expected
    terminal.close()


def test_a_screen_that_is_being_dragged_is_not_drawn_until_it_rests(usual: Screen) -> None:
    def resized(step: int) -> None:
        if 5 <= step < 15:
            usual.resize(80 - step, 24)

    sent: list[int] = []

    def before(step: int) -> None:
        resized(step)
        sent.append(len(usual.sent))

    show(usual, TogetherEngine([["a "] * 30, ["b "] * 30], before=before))
    grown = [after - earlier for earlier, after in pairwise(sent)]
    assert grown[5:15] == [0] * 10
    assert grown[15] > 0


def test_little_is_drawn_for_long_texts(usual: Screen) -> None:
    """TTY-12: redraws are bound by time, not by tokens."""
    times = count()
    engine = TogetherEngine([["word "] * 1000] * 4)
    show(usual, engine, clock=lambda: next(times) / 1000)  # a look or two at each step
    drawings = usual.sent.count("seed 7")
    assert 10 <= drawings <= 21


def test_the_cursor_is_hidden_and_shown_as_often_and_the_texts_stay(usual: Screen) -> None:
    """TTY-2, TTY-4: whatever ends the run."""

    def failing(step: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        show(usual, TogetherEngine([list("abcdef"), list("uvwxyz")], before=failing))
    assert usual.sent.count("\x1b[?25l") == usual.sent.count("\x1b[?25h") >= 1
    assert left_on(usual) == ["abc", "---", "uvw"]


def test_a_signal_leaves_what_there_is_of_each(usual: Screen) -> None:
    """TTY-4"""
    interrupts = Interrupts()

    def signalled(step: int) -> None:
        interrupts.exit_code = 130 if step == 2 else interrupts.exit_code

    engine = TogetherEngine([list("abcdef"), list("x"), list("uvwxyz"), ["later"]], max_running=3, before=signalled)
    assert show(usual, engine, interrupts=interrupts) == 130
    assert left_on(usual) == ["abc~", "---", "x", "---", "uvw~", "---", "later~"]


PIECES = st.lists(st.sampled_from(["a", "word ", " ", "\n", "\t", "中", "👩‍🔬", "e\u0301", "❤️", "x" * 9]), max_size=20)


@settings(max_examples=60, deadline=None)
@given(pieces=PIECES, widths=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_growing_text_has_the_rows_of_the_whole(pieces: list[str], widths: list[int], seed: int) -> None:
    """TTY-11: no row is wider than it may be, and nothing but spaces at an end is left out."""
    order, text = random.Random(seed), GrowingText()
    for piece in pieces:
        text.add(piece)
        if order.random() < 0.5:
            text.last_rows(order.choice(widths), 3)
    for columns in widths:
        rows = text.last_rows(columns, 10_000)
        lines = "".join(pieces).replace("\t", "    ").split("\n")
        fresh = [row for line in lines for row in wrapped(line, max(columns, 2))]
        assert rows == [row.rstrip(" ") for row in fresh]
        assert "".join(fresh) == "".join(lines)
        assert all(cell_len(row) <= max(columns, 2) for row in rows)


def test_rows_are_broken_between_words() -> None:
    assert wrapped("one two three", 8) == ["one two ", "three"]
    assert wrapped("one two  three", 7) == ["one two  ", "three"]
    assert wrapped("a verylongword", 6) == ["a ", "verylo", "ngword"]
    assert wrapped("ab中文中文", 5) == ["ab中", "文中", "文"]
    assert wrapped("", 5) == [""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes control codes after a prompt of two tokens."""
    script = [*b"one \x1b[2J\ntwo", 257]
    return scripted_folder(
        tmp_path_factory.mktemp("model"), script, prompt_length=2, tokenizer=byte_tokenizer(), window=64
    )


def test_the_command_leaves_texts_and_one_line_for_all(folder: Path) -> None:
    """SEC-1, U12"""
    code, sent = on_terminal("run", "ab", "--raw", "-m", str(folder), "-t", "0", "--seed", "7", "-n", "2")
    assert code == 0
    lines = shown_on_screen(sent)
    assert lines[:5] == ["one \\x1b[2J", "two", "---", "one \\x1b[2J", "two"]
    assert lines[5].startswith("2 samples · 2 prompt + 26 new tokens · first token ")
    assert "seeds 7 to 8 · 2 stop" in " ".join(lines[5:])
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h")


@pytest.mark.parametrize("more", [["--inspect", "--top", "1"], ["--color-by", "rank"]])
def test_other_views_show_samples_in_order_on_a_terminal(more: list[str], folder: Path) -> None:
    code, sent = on_terminal("run", "ab", "--raw", "-m", str(folder), "-t", "0", "--seed", "7", "-n", "2", *more)
    assert code == 0
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", sent)
    first, second = re.split(r"^---\r$", plain, flags=re.MULTILINE)
    assert "one \\x1b[2J\r\ntwo" in first
    assert "one \\x1b[2J\r\ntwo" in second
    assert "sample 1 of 2" not in plain


def test_ctrl_c_keeps_the_texts(tmp_path: Path) -> None:
    """TTY-2, TTY-4, U21"""
    folder = tiny_folder(tmp_path, window=4096)
    arguments = ["run", "ab", "--raw", "-m", str(folder), "--seed", "7", "-n", "4", "--ignore-eos", "--max-new-tokens"]
    code, sent = on_terminal(*arguments, "4000", signal_at=b"seed 10")
    assert code == 130
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h")
    last = sent[sent.rindex("\x1b[?25h") :]
    assert last.count("---\r\n") >= 1
    assert "minigen: interrupted; the text so far is kept." in last
    assert "4 interrupted" in last
