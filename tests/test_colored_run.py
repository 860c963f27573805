"""`minigen run --color-by` and `--inspect --stages` as commands: what goes to which stream."""

import json
import re
from pathlib import Path

import pytest
from minigen.cli.app import main
from minigen.cli.escaping import shown
from stubs import byte_tokenizer, scripted_folder
from test_terminal import on_terminal, shown_on_screen

TEXT = "[b]one[/b] \x1b[31m中\ntwo"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that writes TEXT after a prompt of two tokens."""
    script = [*TEXT.encode(), 257]
    path = tmp_path_factory.mktemp("model")
    return str(scripted_folder(path, script, prompt_length=2, tokenizer=byte_tokenizer()))


pytestmark = pytest.mark.usefixtures("no_stdin")


def run_raw(folder: str, *arguments: str) -> int:
    return main(["run", "ab", "--raw", "-m", folder, "--seed", "1", *arguments])


def without_codes(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*[mK]", "", text)


@pytest.mark.parametrize("more", [(), ("-q",), ("--color", "never")])
def test_a_pipe_gets_exact_bytes_and_a_list_elsewhere(
    more: tuple[str, ...], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """SEC-1, MKP-1, TTY-8"""
    assert run_raw(folder, "--color-by", "prob", *more) == 0
    said = capsys.readouterr()
    assert said.out == TEXT
    lines = said.err.splitlines()
    assert lines[:4] == [
        "",
        "seed 1",
        "marks by prob: likely  # 0.9+  ## 0.5+  ### 0.1+  #### 0.01+  ##### less  rare",
        "step   raw p  mark   token",
    ]
    assert len(lines) == 4 + len(TEXT.encode()) + 1  # and the end token
    assert lines[4].endswith('"["')
    assert '"\\x1b"' in said.err
    assert "\x1b" not in said.err


def test_colours_in_a_pipe_hold_visible_text(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-1: what the model writes colours nothing."""
    assert run_raw(folder, "--color-by", "rank", "--color", "always") == 0
    said = capsys.readouterr()
    assert without_codes(said.out) == shown(TEXT)
    assert "\x1b[31m" not in said.out
    assert without_codes(said.err) == "colour by rank: favourite  1   2-3   4-10   11-50   51+  far down\n"


def test_a_file_takes_plain_text(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text"
    assert run_raw(folder, "--color-by", "rank", "--color", "always", "-o", str(path)) == 0
    assert path.read_text("utf-8") == TEXT
    assert "marks by rank: favourite" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--json", "--jsonl"])
def test_json_tells_what_a_colour_would(flag: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raw(folder, "--color-by", "rank", flag) == 0
    said = capsys.readouterr()
    document = json.loads(said.out.splitlines()[-1])
    assert {token["rank"] for token in document["tokens"]} == {1}
    assert said.err == ""


def test_a_terminal_shows_the_legend_and_then_the_text(folder: str) -> None:
    """SEC-1"""
    code, sent = on_terminal("run", "ab", "--raw", "-m", folder, "--color-by", "prob", "--seed", "1")
    assert code == 0
    lines = shown_on_screen(sent)
    assert lines[:3] == [
        "colour by prob: likely  0.9+   0.5+   0.1+   0.01+   less  rare",
        "[b]one[/b] \\x1b[31m中",
        "two",
    ]
    assert "\x1b[31m" not in sent


def test_a_terminal_without_colour_shows_the_list(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    code, sent = on_terminal("run", "ab", "--raw", "-m", folder, "--color-by", "prob", "--seed", "1")
    assert code == 0
    lines = shown_on_screen(sent)
    assert "\x1b[" not in sent.replace("\x1b[K", "")
    assert lines[-1].startswith("2 prompt + ") or lines[-2].startswith("2 prompt + ")
    assert any(line.startswith("step   raw p  mark   token") for line in sent.splitlines())


def test_stages_in_a_pipe_stand_under_the_candidates(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--inspect", "--stages", "--top", "2", "--max-new-tokens", "2", "--top-k", "3", "--top-p", "1"]
    assert run_raw(folder, *arguments, "--color-by", "prob") == 0
    said = capsys.readouterr()
    assert said.out == TEXT[:2]
    heads = [(line.split() or [""])[0] for line in said.err.splitlines()]
    table = ["token", "rank", ">", "2", "", "stage", "raw", "temperature", "top_k"]
    margins = ["", "setting", "temperature", "top_k", "top_p", "min_p"]
    at = heads.index("token")
    assert heads[at : at + 15] == table + margins
    assert heads.count("setting") == 2
    assert heads.count("unchanged,") == 1
    assert heads.index("unchanged,") < heads.index("marks")


def test_a_terminal_ends_with_a_line_for_each_token_and_the_margins(folder: str) -> None:
    """TTY-14, SEC-1"""
    code, sent = on_terminal(
        "run", "ab", "--raw", "-m", folder, "--seed", "1", "--inspect", "--stages", "--color-by", "prob",
        "--max-new-tokens", "4",
    )  # fmt: skip
    assert code == 0
    heads = [line.split()[0] for line in shown_on_screen(sent)]
    end = heads.index("unchanged,")
    assert [head for head in heads[:end] if head in ("step", "raw") or head.isdecimal()] == [
        "step",
        *(head for step in ("1", "2", "3", "4") for head in (step, "raw")),
    ]
