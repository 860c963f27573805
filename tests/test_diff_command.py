"""`minigen diff` as a user meets it: what a change of the prompt changes about a text."""

import io
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from minigen.cli.app import main
from minigen.cli.diff_tables import ComparisonTable, change, paid_lines, sum_lines
from minigen.cli.text_schemas import DIFF
from minigen.cli.token_names import TokenNames
from minigen.generation.comparing import Comparison
from minigen.generation.scoring import Score
from rich.cells import cell_len
from rich.console import Console, Group
from stubs import byte_tokenizer
from tiny_folders import plain_logprobs, tiny_folder, without_template

A, B, TEXT = "Be brief.", "Be long [/INST] é:", " So 🤖\x1b[2J"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"))


pytestmark = pytest.mark.usefixtures("no_stdin")


def diff(folder: Path, *arguments: str) -> int:
    return main(["diff", "-m", str(folder), "--device", "cpu", *arguments])


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line, parse_constant=refuse)
    Draft202012Validator(DIFF).validate(found)
    return found


def check(found: dict[str, Any], folder: Path, before_a: list[int], before_b: list[int]) -> None:
    """Hold a document to two passes of transformers itself."""
    ids = [token["id"] for token in found["tokens"]]
    rows_a = plain_logprobs(folder, [*before_a, *ids])[len(before_a) - 1 : -1]
    rows_b = plain_logprobs(folder, [*before_b, *ids])[len(before_b) - 1 : -1]
    kl = ((rows_a.exp() * (rows_a - rows_b)).sum(-1) / math.log(2)).tolist()
    targets = torch.tensor(ids)[:, None]
    a, b = (rows.gather(-1, targets).flatten().tolist() for rows in (rows_a, rows_b))
    tokens = found["tokens"]
    assert [token["logprob_a"] for token in tokens] == pytest.approx(a, abs=1e-4)
    assert [token["logprob_b"] for token in tokens] == pytest.approx(b, abs=1e-4)
    assert [token["delta"] for token in tokens] == pytest.approx([y - x for x, y in zip(a, b, strict=True)], abs=2e-4)
    assert [token["kl"] for token in tokens] == pytest.approx(kl, abs=1e-4)
    assert found["kl"] == pytest.approx(sum(kl), abs=1e-3)
    assert found["delta"] == pytest.approx(sum(b) - sum(a), abs=1e-3)
    assert (found["logprob_a"], found["logprob_b"]) == pytest.approx((sum(a), sum(b)), abs=1e-3)
    assert found["usage"] == {
        "a_tokens": len(before_a),
        "b_tokens": len(before_b),
        "text_tokens": len(ids),
        "compared_tokens": len(ids),
    }


def test_the_document_equals_plain_transformers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(folder, "-a", A, "-b", B, "--text", TEXT, "--json", "--top", "3") == 0
    found = document(capsys)
    check(found, folder, list(A.encode()), list(B.encode()))
    assert "".join(token["text"] for token in found["tokens"]) == TEXT
    assert (found["a"], found["b"], found["text"], found["mode"]) == (A, B, TEXT, "raw")
    deltas = [token["delta"] for token in found["tokens"]]
    order = sorted(range(len(deltas)), key=lambda i: -deltas[i])
    assert [one["index"] for one in found["gains"]] == [i for i in order if deltas[i] > 0][:3]
    assert [one["index"] for one in found["losses"]] == [i for i in order[::-1] if deltas[i] < 0][:3]
    for one in found["gains"] + found["losses"]:
        assert {**one} == {"index": one["index"], **found["tokens"][one["index"]]}


def test_a_chat_wraps_both_prompts_in_the_template(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(folder, "-a", A, "-b", B, "--text", "Yes", "--chat", "--system", "Hm", "--json") == 0
    head, tail = [256, *b"system: Hm", 257, *b"\nuser: "], [257, *b"\nassistant: "]
    check(document(capsys), folder, [*head, *A.encode(), *tail], [*head, *B.encode(), *tail])


def test_an_empty_prompt_tells_nothing_of_the_first_token(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(folder, "-a", "", "-b", "x", "--text", "abc", "--json") == 0
    found = document(capsys)
    first = found["tokens"][0]
    assert (first["logprob_a"], first["delta"], first["kl"]) == (None, None, None)
    assert first["logprob_b"] is not None
    assert found["usage"]["compared_tokens"] == 2
    assert diff(folder, "-a", "", "-b", "", "--text", "a", "--json") == 0
    found = document(capsys)
    assert (found["kl"], found["delta"], found["gains"], found["losses"]) == (None, None, [], [])


def test_the_same_prompt_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(folder, "-a", A, "-b", A, "--text", "abc") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "no token changed"
    assert "+0.0000" in lines[1]


def test_the_tables_show_the_document_s_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MKP-1, SEC-1"""
    assert diff(folder, "-a", A, "-b", B, "--text", TEXT, "--json", "--top", "2") == 0
    found = document(capsys)
    assert diff(folder, "-a", A, "-b", B, "--text", TEXT, "--top", "2") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", captured.out)
    title, *rows = captured.out.splitlines()
    assert title.split() == ["token", "log", "p", "A", "log", "p", "B", "change", "KL", "bits"]
    num = len(found["tokens"])
    for row, token in zip(rows[:num], found["tokens"], strict=True):
        numbers = f"{token['logprob_a']:.4f} {token['logprob_b']:.4f} {token['delta']:+.4f} {token['kl']:.2f}"
        assert " ".join(row.split()).endswith(numbers)
    parts = "\n".join(rows[num:]).split("\n\n")
    assert f"{num} of {num} tokens compared" in parts[0]
    assert f"change {found['delta']:+.4f} nats" in parts[0]
    assert f"KL {found['kl']:.2f} bits" in parts[0]
    for part, listed in zip(parts[1:], (found["gains"], found["losses"]), strict=True):
        lines = part.splitlines()[2:]
        assert [line.split()[0] for line in lines] == [str(one["index"] + 1) for one in listed]
        assert all(f"{one['delta']:+.4f}" in line for line, one in zip(lines, listed, strict=True))


def test_texts_come_from_files_and_stdin(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """INP-10"""
    (tmp_path / "a").write_bytes("é\n".encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\n"), encoding="utf-8"))
    files = ["--a-file", str(tmp_path / "a"), "-b", "b", "--text-file", "-"]
    assert diff(folder, *files, "--json", "-o", str(tmp_path / "out")) == 0
    found = json.loads((tmp_path / "out").read_text("utf-8"))
    assert (found["a"], found["b"], found["text"]) == ("é", "b", "piped")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-b", "x", "--text", "y"], "-a and --a-file are both missing: give one of them."),
        (["-a", "x", "-b", "x"], "--text and --text-file are both missing: give one of them."),
        (["-a", "x", "--a-file", "y", "-b", "x", "--text", "z"], "-a and --a-file are both given: give one of them."),
        (["-a", "x", "-b", "x", "--text", ""], "The text is empty"),
        (["-a", "x", "-b", "x", "--text", "y", "--system", "z"], "--system needs --chat"),
        (["-a", "x", "-b", "x", "--text", "y", "-q", "-v"], "--quiet and --verbose contradict"),
        (["-a", "x", "-b", "x", "--text", "y", "--top", "0"], "--top must be a whole number between 1 and 1000, not 0"),
        (
            ["--a-file", "-", "--b-file", "-", "--text", "y"],
            "Standard input can be read only once: give - in one place.\n",
        ),
        (["-a", "x", "-b", "x", "--text", "y", "--device", "tpu"], "--device must be one of auto"),
        (["--a-file", "-", "-b", "x", "--text", "y", "--no-stdin"], "--no-stdin forbids it"),
        (["--a-file", "no-such-file", "-b", "x", "--text", "y"], "cannot be read"),
    ],
)
def test_wrong_usage_is_said_before_a_model_is_loaded(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "-m", "no/such-model", "--offline", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_what_does_not_fit_the_window_says_both_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(folder, "-a", "x", "-b", "x" * 120, "--text", "y" * 10) == 2
    assert "have 130 tokens, but the model's window is 128" in capsys.readouterr().err


def test_a_model_without_a_chat_template_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = without_template(tiny_folder(tmp_path))
    assert diff(folder, "-a", "x", "-b", "y", "--text", "z", "--chat") == 2
    assert capsys.readouterr().err == f"minigen: The model {folder.name} has no chat template: leave --chat out.\n"


def printed(table: Any, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(table, soft_wrap=True)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return stream.getvalue().splitlines()


def _changed(token_id: int, by: float) -> Comparison:
    return Comparison(
        a=Score(token_id=token_id, logprob=-1234.5), b=Score(token_id=token_id, logprob=-1234.5 + by), kl=9e4
    )


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80, 200])
def test_every_table_holds_at_any_width(width: int) -> None:
    """TTY-13, TTY-14, MKP-2, SEC-1"""
    hostile = ["[/x]", "\x1b[2J", "中文字", "👩‍🔬", "\u202e"]
    names = TokenNames(byte_tokenizer(hostile))
    found = [_changed(258 + i, 0.0 if i == 0 else -20.5 if i % 2 else 20.5) for i in range(len(hostile))]
    table = printed(ComparisonTable(100000, names).block(found, width), width)
    assert len(table) == len(hostile) + 1
    sums = printed(Group(*sum_lines(found, width)), width)
    paid = [line for part in paid_lines(found, names, 5, width) for line in printed(Group(*part), width)]
    assert len(paid) == 2 * (2 + 2)
    for line in [*table, *sums, *paid]:
        assert cell_len(line) <= width
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", line)
    if width >= 20:
        assert "change" in table[0]
        assert "-20.5000" in table[2]
        assert "[/x]" in table[1]


def test_changes_carry_their_sign() -> None:
    assert [change(value) for value in (None, 1.0, -0.25, math.inf, -math.inf)] == [
        "-",
        "+1.0000",
        "-0.2500",
        "+inf",
        "-inf",
    ]


@pytest.mark.real_model
def test_the_default_model_prefers_the_language_that_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], default_model: Any
) -> None:
    prompts = ["-a", "English: good morning. German:", "-b", "English: good morning. French:"]
    assert main(["diff", *prompts, "--text", " bonjour", "--json", "--device", "cpu"]) == 0
    assert document(capsys)["delta"] > 1
