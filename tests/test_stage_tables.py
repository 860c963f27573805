"""Stages and margins: what stands in their tables, in which words, and that they hold at any width."""

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st
from minigen.cli.margin_words import MarginWords
from minigen.cli.stage_tables import margin_lines, note_lines, stage_lines, stage_note, unchanged_lines
from minigen.cli.step_tables import fitted_step_lines, step_lines
from minigen.generation.trace import KNOBS, Candidate, Draw, Interval, Margin, Stage
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType

USED = {"temperature": 0.8, "top_k": 0, "top_p": 0.95, "min_p": 0.0, "model": "any"}
WORDS = MarginWords(49152, USED)


def interval(low: float, high: float, ends: str = "[]") -> Interval:
    return Interval(low=low, high=high, is_low_closed=ends[0] == "[", is_high_closed=ends[1] == "]")


def stage(name: str, tokens_left: int, mass_removed: float, entropy: float, prob: float, rank: int) -> Stage:
    return Stage(name=name, tokens_left=tokens_left, mass_removed=mass_removed, entropy=entropy, prob=prob, rank=rank)


def inspected_draw(num_candidates: int = 1, label: int = 0) -> Draw:
    """A draw with three stages, four margins, and candidates of one label."""
    one = Candidate(token_id=label, logit=1.0, logprob=-0.7, final_prob=0.6, dropped_by=None)
    margins = {
        "temperature": Margin(allowed=interval(0, 2.31234), picked=interval(0.70123, 0.93456, "[)")),
        "top_k": Margin(allowed=interval(2, 49152), picked=interval(3, 40)),
        "top_p": Margin(allowed=interval(0.4213, 1, "(]"), picked=interval(0.8812, 1, "(]")),
        "min_p": None,
    }
    return Draw(
        token_id=label,
        logit=1.0,
        logprob=-0.7,
        rank=1,
        entropy=1.0,
        final_prob=0.6,
        u=0.1,
        candidates=(one,) * num_candidates,
        stages=(
            stage("raw", 49152, 0, 2.164, 0.77064, 12),
            stage("no_repeat_ngram_size", 49150, 0.0000123, 2.1, 0.7707, 12),
            stage("temperature", 49150, 0, 1.2, 0.8906, 12),
            stage("top_p", 2, 0.0312, 0.25, 1, 1),
        ),
        margins=margins,
    )


class Labels:
    def label(self, token_id: int) -> str:
        return [
            '"a"',
            '"中文中文中文"',
            '"e\u0301e\u0301"',
            '"👩‍🔬❤️"',
            '"[/INST] [b]"',
            '"\x1b[2J\x1b]0;x\x07\u202e\n"',
        ][token_id]


def written(lines: Sequence[RenderableType], width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False)
    console.print(Group(*lines), soft_wrap=True)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    return text.splitlines()


def test_each_stage_has_a_line_in_the_order_of_the_chain() -> None:
    assert written(stage_lines(inspected_draw(), width=80)) == [
        "stage                 tokens left  mass removed  entropy  chosen p  rank",
        "raw                         49152             0     2.16    0.7706    12",
        "no_repeat_ngram_size        49150        <.0001     2.10    0.7707    12",
        "temperature                 49150             0     1.20    0.8906    12",
        "top_p                           2        0.0312     0.25    1.0000     1",
    ]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            40,
            [
                "stage        tokens removed  bits chosen",
                "raw           49152       0  2.16 0.7706",
                "no_repeat_n…  49150  <.0001  2.10 0.7707",
                "temperature   49150       0  1.20 0.8906",
                "top_p             2  0.0312  0.25 1.0000",
            ],
        ),
        (
            20,
            [
                "stage         chosen",
                "raw           0.7706",
                "no_repeat_ng… 0.7707",
                "temperature   0.8906",
                "top_p         1.0000",
            ],
        ),
    ],
)
def test_columns_of_stages_go_by_need(width: int, lines: list[str]) -> None:
    """TTY-14"""
    assert written(stage_lines(inspected_draw(), width=width), width) == lines


def test_few_rows_keep_the_raw_distribution_and_the_last_stages() -> None:
    names = [line.split()[0] for line in written(stage_lines(inspected_draw(), width=80, max_rows=4))]
    assert names == ["stage", "raw", "temperature", "top_p"]
    assert len(stage_lines(inspected_draw(), width=80, max_rows=2)) == 2
    assert written(stage_lines(inspected_draw(), width=80, max_rows=2))[1].startswith("top_p")


def test_margins_say_where_a_token_is_allowed_and_where_it_is_picked() -> None:
    assert written(margin_lines(inspected_draw(), WORDS, width=80)) == [
        "setting      allowed at                  picked at",
        "temperature  at most 2.312               0.7013 to below 0.9345",
        "top_k        2 or more                   3 to 40",
        "top_p        above 0.4213                above 0.8812",
        "min_p        not computed                not computed",
    ]


def test_narrow_margins_keep_where_a_token_is_picked() -> None:
    """TTY-14"""
    assert written(margin_lines(inspected_draw(), WORDS, width=40), 40) == [
        "setting     picked at",
        "temperature 0.7013 to below 0.9345",
        "top_k       3 to 40",
        "top_p       above 0.8812",
        "min_p       not computed",
    ]
    assert written(margin_lines(inspected_draw(), WORDS, width=20), 20) == [
        "picked at",
        "temperature 0.7013",
        " to below 0.9345",
        "top_k 3 to 40",
        "top_p above 0.8812",
        "min_p not computed",
    ]


def test_a_whole_text_says_what_leaves_it_unchanged() -> None:
    margins = {name: margin.picked if margin else None for name, margin in inspected_draw().margins.items()}
    assert written(unchanged_lines(margins, WORDS, width=120), 120) == [
        "unchanged, one setting at a time: temperature 0.7013 to below 0.9345 · top_k 3 to 40 · top_p above 0.8812",
        "min_p not computed",
    ]
    assert written(unchanged_lines(margins, WORDS, width=40), 40) == [
        "unchanged, one setting at a time:",
        "temperature 0.7013 to below 0.9345",
        "top_k 3 to 40 · top_p above 0.8812",
        "min_p not computed",
    ]


def test_margins_of_which_none_is_computed_are_one_line() -> None:
    none = dict.fromkeys(KNOBS)
    draw = replace(inspected_draw(), margins=none)
    assert written(margin_lines(draw, WORDS, width=80)) == ["margins not computed"]
    assert written(unchanged_lines(none, WORDS, width=80)) == ["unchanged, one setting at a time: not computed"]


@pytest.mark.parametrize("width", [80, 40, 20, 13, 10, 5, 2, 1])
def test_nothing_is_wider_than_the_screen(width: int) -> None:
    """TTY-13, TTY-14, SEC-1, MKP-2"""
    margins = {name: margin.picked if margin else None for name, margin in inspected_draw().margins.items()}
    for label in range(6):
        lines = step_lines(1, inspected_draw(3, label), Labels(), WORDS, width=width)
        for line in written([*lines, *unchanged_lines(margins, WORDS, width=width)], width):
            assert cell_len(line) <= width
            assert line.isprintable()


@pytest.mark.parametrize(
    ("rows", "first_words"),
    [
        (2, []),
        (3, ["token", "rank", ">"]),
        (4, ["token", "rank", ">", ">"]),
        (5, ["token", "rank", ">", "stage", "top_p"]),
        (7, ["token", "rank", ">", "stage", "raw", "temperature", "top_p"]),
        (9, ["token", "rank", ">", ">", "stage", "raw", "no_repeat_ngram_size", "temperature", "top_p"]),
        (10, ["token", "rank", ">", "stage", "raw", "no_repeat_ngram_size", "temperature", "top_p", "setting"]),
    ],
)
def test_rows_go_to_a_candidate_then_to_the_stages_then_to_the_margins(rows: int, first_words: list[str]) -> None:
    lines = written(fitted_step_lines(1, inspected_draw(9), Labels(), WORDS, width=80, rows=rows))
    assert [line.split()[0] for line in lines][: len(first_words)] == first_words
    assert len(lines) == (rows if first_words else 0)


def test_stages_show_only_where_they_are_wanted() -> None:
    lines = written(step_lines(1, inspected_draw(), Labels(), None, width=80))
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("name", "margin", "text"),
    [
        ("temperature", interval(0, 100), "any"),
        ("temperature", interval(0, 100, "(]"), "above 0"),
        ("temperature", interval(0, 0.25), "at most 0.25"),
        ("temperature", interval(0, 0.25, "[)"), "below 0.25"),
        ("temperature", interval(0, 0), "at most 0"),
        ("temperature", interval(0.25, 100), "0.25 or more"),
        ("temperature", interval(0.25, 1), "0.25 to 1"),
        ("temperature", interval(0.25, 1, "[)"), "0.25 to below 1"),
        ("temperature", interval(0.25, 1, "(]"), "above 0.25 to 1"),
        ("temperature", interval(0.25, 1, "()"), "above 0.25, below 1"),
        ("temperature", interval(0.25, 0.25), "only 0.25"),
        ("temperature", interval(0.25, 0.25, "[)"), "none"),
        ("temperature", interval(0.5, 0.25), "none"),
        ("temperature", None, "not computed"),
        ("top_k", interval(1, 49152), "any"),
        ("top_k", interval(12, 49152), "12 or more"),
        ("top_k", interval(1, 12), "at most 12"),
        ("top_k", interval(2, 12), "2 to 12"),
        ("top_k", interval(1, 1), "at most 1"),
        ("top_p", interval(0, 1, "(]"), "any"),
        ("top_p", interval(0, 0.5, "(]"), "at most 0.5"),
        ("top_p", interval(0.5, 1, "(]"), "above 0.5"),
        ("min_p", interval(0, 1), "any"),
        ("min_p", interval(0, 0.04), "at most 0.04"),
        ("min_p", interval(0, 0.0000123456), "at most 0.00001234"),
        ("min_p", interval(0, 1.23456e-9), "at most 1.234e-9"),
    ],
)
def test_an_interval_in_words(name: str, margin: Interval | None, text: str) -> None:
    assert MarginWords(49152, {}).say(name, margin) == text


@pytest.mark.parametrize(
    ("margin", "text"),
    [
        (interval(0.799991234, 1, "(]"), "above 0.799992 to 1"),  # 0.8 is in use, and would lie outside "above 0.8"
        (interval(0.8, 1), "0.8 to 1"),
        (interval(0.80001234, 0.80005678), "0.80002 to 0.80005"),  # four digits would leave nothing between
        (interval(0.1, 0.80000001, "[)"), "0.1 to below 0.80000001"),
    ],
)
def test_bounds_have_as_many_digits_as_they_need(margin: Interval, text: str) -> None:
    assert WORDS.say("temperature", margin) == text


ENDS = st.sampled_from(["[]", "[)", "(]", "()"])
BOUND = st.floats(1e-9, 1, exclude_max=True)


@settings(max_examples=100, deadline=None)
@given(BOUND, BOUND, ENDS, st.floats(0, 1))
def test_what_is_said_of_an_interval_is_true_and_keeps_the_value_in_use(
    one: float, other: float, ends: str, used: float
) -> None:
    low, high = sorted([one, other])
    assume(low < high)
    margin = interval(low, high, ends)
    said = parsed(MarginWords(100, {"min_p": used}).say("min_p", margin))
    assert low <= said.low <= said.high <= high
    assert said.is_low_closed == margin.is_low_closed
    assert said.is_high_closed == margin.is_high_closed
    assert (used in said) or used not in margin


def parsed(text: str) -> Interval:
    """Read an interval that has both bounds."""
    words = text.replace(", below", " to below").split(" to ")
    numbers: list[Any] = [float(word.rsplit(" ", 1)[-1]) for word in words]
    return Interval(
        low=numbers[0],
        high=numbers[1],
        is_low_closed=not words[0].startswith("above"),
        is_high_closed=not words[1].startswith("below"),
    )


def test_what_is_kept_of_a_step_names_its_stages_and_where_it_is_picked() -> None:
    assert written(note_lines(stage_note(inspected_draw(), WORDS), width=80)) == [
        "      raw 49152 > no_repeat_ngram_size 49150 (removed <.0001)",
        "      temperature 49150 > top_p 2 (removed 0.0312)",
        "      picked at temperature 0.7013 to below 0.9345 · top_k 3 to 40",
        "      top_p above 0.8812",
    ]


@pytest.mark.parametrize("width", [1, 5, 10, 20, 40, 80, 120])
def test_what_is_kept_of_a_step_is_never_wider_than_the_screen(width: int) -> None:
    lines = written(note_lines(stage_note(inspected_draw(), WORDS), width=width), width)
    assert max(cell_len(line) for line in lines) <= width
