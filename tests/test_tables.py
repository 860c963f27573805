"""Inspection tables: what stands in them, and that they hold at any width."""

import io
import math

import pytest
from minigen.cli.escaping import shown
from minigen.cli.tables import candidate_table, probability, summary_row, summary_table
from minigen.cli.token_names import TokenNames
from minigen.generation.trace import Candidate, Draw
from rich.cells import cell_len
from rich.console import Console, RenderableType
from stubs import byte_tokenizer, sentencepiece_tokenizer


class Words:
    """Names that a test chooses."""

    def __init__(self, *labels: str) -> None:
        self._labels = labels

    def label(self, token_id: int) -> str:
        return self._labels[token_id]


def draw_of(chosen: int, raw: list[float], final: list[float], *, u: float | None = 0.5) -> Draw:
    """A draw over tokens 0, 1, 2 … in falling raw probability; those without a final one fell to top_k."""
    candidates = tuple(
        Candidate(
            token_id=i,
            logit=math.log(p) if p else -math.inf,
            logprob=math.log(p) if p else -math.inf,
            final_prob=final[i],
            dropped_by=None if final[i] else "top_k",
        )
        for i, p in enumerate(raw)
    )
    own = candidates[chosen]
    return Draw(
        token_id=chosen,
        logit=own.logit,
        logprob=own.logprob,
        rank=chosen + 1,
        entropy=1.75,
        final_prob=own.final_prob,
        u=u,
        candidates=candidates,
    )


DRAW = draw_of(1, [0.5, 0.25, 0.125, 0.125], [2 / 3, 1 / 3, 0, 0])
WORDS = Words('"a"', '" bc"', '"d"', "special <|end|>")


def written(table: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False)
    console.print(table, soft_wrap=True)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    return text.splitlines()


def test_a_table_shows_both_stages_what_dropped_a_token_and_the_chosen_one() -> None:
    """STA-5, TOK-3"""
    assert written(candidate_table(3, DRAW, WORDS, width=80)) == [
        'token 3: " bc"  rank 2, entropy 1.75, surprisal 2.00 bits, u 0.5000',
        "   rank  token                   id     logit   raw p  final p  dropped by",
        '      1  "a"                      0    -0.693  0.5000   0.6667',
        '>     2  " bc"                    1    -1.386  0.2500   0.3333',
        '      3  "d"                      2    -2.079  0.1250        0  top_k',
        "      4  special <|end|>          3    -2.079  0.1250        0  top_k",
    ]


def test_greedy_and_ruled_out_tokens_have_plain_numbers() -> None:
    """STA-5, SMP-1"""
    lines = written(candidate_table(1, draw_of(0, [1.0, 0.0], [1.0, 0.0], u=None), WORDS, width=80))
    assert lines[0].endswith("greedy")
    assert lines[3].split() == ["2", '"', 'bc"', "1", "-inf", "0", "0", "top_k"]


@pytest.mark.parametrize("width", [40, 20])
def test_token_and_final_probability_stay_readable(width: int) -> None:
    """TTY-14"""
    lines = written(candidate_table(1, DRAW, WORDS, width=width))
    assert all(cell_len(line) <= width for line in lines)
    assert "final p" in lines[1]
    assert lines[3].startswith(">")
    assert '" bc"' in lines[3]
    assert lines[3].endswith("0.3333")


@pytest.mark.parametrize("width", [10, 5, 2, 1])
def test_no_width_is_too_small(width: int) -> None:
    """TTY-14"""
    assert all(cell_len(line) <= width for line in written(candidate_table(1, DRAW, WORDS, width=width)))
    rows = [summary_row(1, DRAW, WORDS)]
    assert all(cell_len(line) <= width for line in written(summary_table(rows, width=width)))


def test_columns_line_up_beside_emoji_and_wide_characters() -> None:
    """TTY-13"""
    tokenizer = byte_tokenizer(["❤️", "中", "e\u0301", "a\u200bb"])
    names = TokenNames(tokenizer)
    draw = draw_of(0, [0.25] * 4, [0.25] * 4)
    words = Words(*(names.label(258 + i) for i in range(4)))
    lines = written(candidate_table(1, draw, words, width=80))
    ends = {cell_len(line[: line.rindex("0.2500")]) for line in lines[2:]}
    assert len(ends) == 1
    assert [words.label(i) for i in range(4)] == ['"❤\\ufe0f"', '"中"', '"e\u0301"', '"a\\u200bb"']


def test_text_in_brackets_is_literal() -> None:
    """MKP-2"""
    words = Words('"[/INST]"', '"list[int]"')
    lines = written(candidate_table(1, draw_of(0, [0.5, 0.5], [0.5, 0.5]), words, width=80))
    assert '"[/INST]"' in lines[0]
    assert '"list[int]"' in lines[3]


def test_few_rows_keep_the_chosen_token() -> None:
    lines = written(candidate_table(1, draw_of(3, [0.4, 0.3, 0.2, 0.1], [0.25] * 4), WORDS, width=80, max_rows=4))
    assert len(lines) == 4
    assert lines[-1].startswith(">     4")


def test_the_summary_has_a_line_for_each_token() -> None:
    assert written(summary_table([summary_row(1, DRAW, WORDS)], width=80)) == [
        "step  token                id   raw p  final p  rank  entropy  likeliest other",
        '   1  " bc"                 1  0.2500   0.3333     2     1.75  0.5000 "a"',
    ]


@pytest.mark.parametrize(
    ("p", "text"), [(0, "0"), (1e-9, "<.0001"), (0.00004, "<.0001"), (0.00006, "0.0001"), (1, "1.0000")]
)
def test_a_small_probability_is_not_none(p: float, text: str) -> None:
    assert probability(p) == text


def test_tokens_have_names() -> None:
    """TOK-3, VOC-1"""
    names = TokenNames(byte_tokenizer([" the"]))
    assert names.label(257) == "special <|end|>"
    assert names.text(257) == "<|end|>"
    assert names.label(300) == names.text(300) == "<id 300>"
    assert names.label(258) == '" the"'
    assert names.label(ord("\n")) == '"\\n"'
    assert names.label(0xE2) == '"\\xe2"'
    assert names.label(0x1B) == '"\\x1b"'


def test_a_sentencepiece_word_keeps_its_space_and_a_byte_its_name() -> None:
    tokenizer = sentencepiece_tokenizer()
    names = TokenNames(tokenizer)
    assert names.label(tokenizer.convert_tokens_to_ids("▁Hello")) == '" Hello"'
    assert names.label(tokenizer.convert_tokens_to_ids("<0xE2>")) == '"<0xE2>"'


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]0;pwn\x07", "\\x1b]0;pwn\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb\x08\x7f\0", "a\\rb\\x08\\x7f\\x00"),
        ("\u202ex\u2066", "\\u202ex\\u2066"),
        ("a\n\tb 中 ❤️", "a\n\tb 中 ❤️"),
    ],
)
def test_what_steers_a_terminal_is_shown(text: str, visible: str) -> None:
    """SEC-1"""
    assert shown(text) == visible
