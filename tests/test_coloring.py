"""Text in the colours of its tokens: levels, palettes, what is written, and the list where there is no colour."""

import io
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from minigen.cli.color_list import color_list, measured_token
from minigen.cli.color_views import ColoredTextView, LegendView, ListView
from minigen.cli.coloring import SCALES, STYLES_OF_16, STYLES_OF_256, Coloring, Measure, level_of, value_of
from minigen.cli.painting import Cursor, Piece, ansi
from minigen.cli.terminal import has_256_colors
from minigen.cli.views import TextView
from minigen.generation.params import SamplingParams
from minigen.generation.sampler import Sampler
from minigen.generation.trace import Draw, Output
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.style import Style
from test_live import PLAN, Plan, ScriptedEngine, run

MEASURES: tuple[Measure, ...] = ("prob", "rank", "entropy", "surprisal")
SIGNS = ("1", "2", "3", "4", "5")  # in place of styles


class Texts:
    """The own texts of tokens, by id; those in angle brackets are special."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def text(self, token_id: int) -> str:
        return self._texts[token_id]

    def is_special(self, token_id: int) -> bool:
        return self._texts[token_id].startswith("<|")

    def label(self, token_id: int) -> str:
        return f'"{self._texts[token_id]}"'


def draw_of(token_id: int, level: int) -> Draw:
    """A draw whose raw probability is of a level."""
    prob = (0.95, 0.5, 0.25, 0.02, 0.001)[level]
    return Draw(token_id=token_id, logit=0.0, logprob=math.log(prob), rank=3, entropy=1.5, final_prob=prob, u=0.5)


def output_of(text: str, token_id: int | None = None, level: int = 0) -> Output:
    draw = None if token_id is None else draw_of(token_id, level)
    return Output(request_id="0", text=text, token_id=token_id, draw=draw)


def pieces_of(coloring: Coloring, *outputs: Output) -> list[tuple[str, str]]:
    return [tuple(piece) for output in outputs for piece in coloring.pieces(output)]


@pytest.mark.parametrize(
    ("measure", "values"),
    [
        ("prob", [(1.0, 0), (0.9, 0), (0.8999, 1), (0.5, 1), (0.4999, 2), (0.1, 2), (0.0999, 3), (0.01, 3), (0.0, 4)]),
        ("rank", [(1, 0), (2, 1), (3, 1), (4, 2), (10, 2), (11, 3), (50, 3), (51, 4), (49152, 4)]),
        ("entropy", [(0.0, 0), (0.499, 0), (0.5, 1), (1.99, 1), (2, 2), (3.99, 2), (4, 3), (5.99, 3), (6, 4), (15, 4)]),
        ("surprisal", [(0.0, 0), (0.5, 1), (2, 2), (4, 3), (6, 4), (math.inf, 4)]),
    ],
)
def test_levels_begin_at_fixed_values(measure: Measure, values: list[tuple[float, int]]) -> None:
    assert [level_of(value, measure) for value, _ in values] == [level for _, level in values]


@pytest.mark.parametrize("seed", range(5))
def test_measures_agree_with_the_logits(seed: int) -> None:
    row = torch.randn(200, generator=torch.Generator().manual_seed(seed)) * 3
    draw = Sampler(SamplingParams(seed=seed, temperature=2.0)).draw(row)
    weights = [math.exp(float(logit)) for logit in row.double()]
    probs = [weight / math.fsum(weights) for weight in weights]
    own = probs[draw.token_id]
    assert value_of(draw, "prob") == pytest.approx(own, rel=1e-5)
    assert value_of(draw, "surprisal") == pytest.approx(-math.log2(own), abs=1e-5)
    assert value_of(draw, "rank") == 1 + sum(prob > own for prob in probs)
    assert value_of(draw, "entropy") == pytest.approx(-math.fsum(p * math.log2(p) for p in probs), abs=1e-5)


def luminance(number: int) -> float:
    """Relative luminance of a colour of the 256 (WCAG 2.2, sRGB)."""
    steps = (0, 95, 135, 175, 215, 255)
    place = number - 16
    channels = [steps[place // 36], steps[place // 6 % 6], steps[place % 6]]
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def lightness(number: int) -> float:
    """L* of CIELAB, 0 to 100."""
    y = luminance(number)
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_levels_grow_lighter_by_steps_that_can_be_seen_without_hue() -> None:
    numbers = [Style.parse(style).bgcolor.number for style in STYLES_OF_256]  # type: ignore[union-attr]  # all have one
    steps = [lightness(numbers[i + 1]) - lightness(numbers[i]) for i in range(4)]  # type: ignore[arg-type]  # of 256
    assert min(steps) > 15


def test_text_is_readable_on_every_level() -> None:
    """WCAG asks for a contrast of 4.5."""
    for style in map(Style.parse, STYLES_OF_256):
        pair = sorted(luminance(color.number) for color in (style.color, style.bgcolor))  # type: ignore[union-attr, arg-type]  # both are of the 256
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5


@pytest.mark.parametrize("styles", [STYLES_OF_256, STYLES_OF_16])
def test_the_last_level_needs_no_colour(styles: Sequence[str]) -> None:
    assert [bool(Style.parse(style).underline) for style in styles] == [False] * 4 + [True]
    assert len(set(styles)) == 5


@pytest.mark.parametrize(
    ("environ", "is_rich"),
    [
        ({}, False),
        ({"TERM": "xterm"}, False),
        ({"TERM": "linux", "COLORTERM": ""}, False),
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, True),
        ({"COLORTERM": "24bit"}, True),
    ],
)
def test_the_palette_follows_the_terminal(environ: dict[str, str], is_rich: bool) -> None:
    assert has_256_colors(environ) is is_rich


def test_each_piece_has_the_colour_of_its_token() -> None:
    coloring = Coloring("prob", SIGNS, Texts(" a", "b", "<|end|>"))
    outputs = [output_of(" a", 0, 0), output_of("b", 1, 3), output_of("", 2, 4)]
    assert pieces_of(coloring, *outputs) == [(" a", "1"), ("b", "4")]


def test_text_that_was_held_back_is_shared_out_to_its_tokens() -> None:
    texts = Texts("Hel", "<|tool|>", "lo", "!")
    coloring = Coloring("prob", SIGNS, texts)
    held = [output_of("", 0, 0), output_of("", 1, 1), output_of("Hell", 2, 2), output_of("o!", 3, 3)]
    assert pieces_of(coloring, *held) == [("Hel", "1"), ("l", "3"), ("o", "3"), ("!", "4")]
    coloring.begin()
    assert pieces_of(coloring, output_of("", 0, 4), output_of("Hel")) == [("Hel", "5")]  # an end without a token


def test_a_character_of_several_tokens_has_the_colour_of_the_last() -> None:
    coloring = Coloring("prob", SIGNS, Texts("\ufffd", "\ufffd", "x"))
    outputs = [output_of("", 0, 0), output_of("é", 1, 3), output_of("x", 2, 1)]
    assert pieces_of(coloring, *outputs) == [("é", "4"), ("x", "2")]


def test_a_token_that_the_text_writes_otherwise_keeps_its_colour() -> None:
    """A SentencePiece model's first word loses its space."""
    coloring = Coloring("prob", SIGNS, Texts(" Hello", " you"))
    assert pieces_of(coloring, output_of("Hello", 0, 2), output_of(" you", 1, 0)) == [("Hello", "3"), (" you", "1")]


def test_a_new_text_starts_anew() -> None:
    coloring = Coloring("prob", SIGNS, Texts("a", "b"))
    coloring.pieces(output_of("", 0, 4))
    coloring.begin()
    assert pieces_of(coloring, output_of("b", 1, 0)) == [("b", "1")]


def test_what_is_held_is_bounded() -> None:
    coloring = Coloring("prob", SIGNS, Texts("a", "b"))
    for _ in range(1000):
        coloring.pieces(output_of("b", 1))
        coloring.pieces(output_of("z", 0))
    assert len(coloring._waiting) < 3


def test_colour_ends_before_the_line_does() -> None:
    pieces = [Piece("one\n\ntwo", "white on blue"), Piece("\n", "white on blue"), Piece("plain")]
    assert ansi(pieces, Cursor(), None) == "\x1b[37;44mone\x1b[0m\n\n\x1b[37;44mtwo\x1b[0m\nplain"


@pytest.mark.parametrize(
    ("texts", "is_cleared"),
    [
        (["abcdefghij"], [False]),  # a full row: clearing would take its last character away
        (["abcdefghijk"], [True]),
        (["abcdefgh", "ijkl"], [False, True]),
        (["abcdefghij", "k", "l"], [False, True, False]),
        (["abcdefghi中"], [True]),
        (["abcdefghe\u0301e\u0301"], [False]),
        (["abc\tdefg"], [True]),
        (["abcdefghijk\nl", "m"], [True, False]),
        (["a" * 20], [False]),
    ],
)
def test_a_wrapped_row_is_cleared_behind_the_text(texts: list[str], is_cleared: list[bool]) -> None:
    cursor = Cursor()
    written = [ansi([Piece(text, "white on blue")], cursor, 10) for text in texts]
    assert ["\x1b[K" in text for text in written] == is_cleared


def test_plain_pieces_and_pipes_are_not_cleared() -> None:
    assert ansi([Piece("a" * 15)], Cursor(), 10) == "a" * 15
    assert "\x1b[K" not in ansi([Piece("a" * 15, "red")], Cursor(), None)


class Names(Texts):
    def __init__(self) -> None:
        super().__init__(*(f"{i}" for i in range(100)))


def colored_run(pieces: Sequence[str], *, is_terminal: bool = True, num_samples: int = 1) -> str:
    out = io.StringIO()
    view = ColoredTextView(out, Coloring("rank", STYLES_OF_16, Names()), is_terminal=is_terminal)
    run(ScriptedEngine(pieces), view, Plan(prompt=PLAN.prompt, params=PLAN.params, num_samples=num_samples))
    return out.getvalue()


def sure(text: str) -> str:
    return f"\x1b[97;40m{text}\x1b[0m"


def test_a_coloured_text_streams_piece_by_piece() -> None:
    """TTY-18"""
    seen: list[str] = []

    class Flushed(io.StringIO):
        def flush(self) -> None:
            seen.append(self.getvalue())

    view = ColoredTextView(Flushed(), Coloring("rank", STYLES_OF_16, Names()), is_terminal=False)
    run(ScriptedEngine(["a", "", "b"]), view)
    assert seen == [sure("a"), sure("a") + sure("b")]


def test_a_model_cannot_colour_move_or_inject() -> None:
    """SEC-1, MKP-1: also where the colours go into a pipe."""
    pieces = ["\x1b[0m", "\x1b[2J", "\x1b]0;pwn\x07", "\x9b2J", "a\rb", "\u202e", "[/INST] [bold]x[/bold]"]
    for is_terminal in (True, False):
        sent = colored_run(pieces, is_terminal=is_terminal)
        own = sent.replace("\x1b[97;40m", "").replace("\x1b[0m", "").replace("\x1b[K", "")
        assert own.rstrip("\n") == "\\x1b[0m\\x1b[2J\\x1b]0;pwn\\x07\\x9b2Ja\\rb\\u202e[/INST] [bold]x[/bold]"


def test_coloured_samples_are_parted() -> None:
    assert colored_run(["a\n"], num_samples=2) == f"{sure('a')}\n---\n{sure('a')}\n"
    assert colored_run(["a"], num_samples=2, is_terminal=False) == f"{sure('a')}\n---\n{sure('a')}"


def console(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None, markup=False)


def printed(lines: Sequence[RenderableType], width: int) -> list[str]:
    paper = console(width)
    paper.print(Group(*lines), soft_wrap=True)
    text: str = paper.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    return text.splitlines()


def test_the_legend_comes_before_the_first_text_only() -> None:
    paper, coloring = console(80), Coloring("prob", STYLES_OF_256, Names())
    out: Any = paper.file
    view = LegendView(TextView(out, is_terminal=True), paper, coloring)
    run(ScriptedEngine(["text\n"]), view, Plan(prompt=PLAN.prompt, params=PLAN.params, num_samples=2))
    assert out.getvalue().splitlines() == [
        "colour by prob: likely  0.9+   0.5+   0.1+   0.01+   less  rare",
        "text",
        "---",
        "text",
    ]


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("width", [80, 40, 20, 10, 5, 2, 1])
def test_legend_and_list_are_never_wider_than_the_screen(measure: Measure, width: int) -> None:
    """TTY-14"""
    coloring = Coloring(measure, STYLES_OF_256, Names())
    texts = Texts("中文中文中文", "e\u0301" * 20, "👩‍🔬", "a\u200bb")
    tokens = [measured_token(draw_of(i, i), texts, measure) for i in range(4)]
    for lines in (coloring.legend(width), color_list(tokens, measure, width=width)):
        assert all(cell_len(line) <= width for line in printed(lines, width))


def test_without_colour_the_text_stays_as_it_is_and_a_list_follows() -> None:
    out, paper = io.StringIO(), console(60)
    listed: Any = paper.file
    view = ListView(TextView(out, is_terminal=False), paper, Names(), "prob")
    run(ScriptedEngine(["a\x1b", "[x]\n"]), view)
    assert out.getvalue() == "a\x1b[x]\n"
    assert listed.getvalue().splitlines() == [
        "",
        "seed 41",
        "marks by prob: likely  # 0.9+  ## 0.5+  ### 0.1+  #### 0.01+",
        "##### less  rare",
        "step   raw p  mark   token",
        '   1  0.4966  ###    "0"',
        '   2  0.4966  ###    "1"',
    ]


@pytest.mark.parametrize(
    ("measure", "line"),
    [
        ("prob", '   1  0.0010  #####  "a"'),
        ("rank", '   1       3  ##     "a"'),
        ("entropy", '   1     1.50  ##     "a"'),
        ("surprisal", '   1       9.97  #####  "a"'),
    ],
)
def test_the_list_has_values_marks_and_tokens(measure: Measure, line: str) -> None:
    tokens = [measured_token(draw_of(0, 4), Texts("a"), measure)]
    assert printed(color_list(tokens, measure, width=80), 80)[-1] == line


def test_a_narrow_list_keeps_value_mark_and_token() -> None:
    """TTY-14"""
    tokens = [measured_token(draw_of(0, 2), Texts(" letters"), "prob")]
    assert printed(color_list(tokens, "prob", width=20), 20)[-1] == '0.2500 ###   " lett…'


def test_every_measure_says_what_its_five_levels_are() -> None:
    assert all(len(scale.labels) == len(scale.bounds) + 1 == 5 for scale in SCALES.values())
