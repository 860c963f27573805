"""`minigen replay`: a trace drawn again, as a table and as JSON."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from minigen.cli.app import main
from minigen.generation.model import Model
from stubs import byte_tokenizer

PIECES = [" Paris", " Lyon", "[/b]", "\x1b[2J", "中\u202e"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that finds the pieces likely, each at its own place: the first is 0.55 for the first token."""
    import transformers as tf

    tokenizer = byte_tokenizer(PIECES)
    path = tmp_path_factory.mktemp("model")
    config = tf.GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=64, n_layer=1, n_head=1, tie_word_embeddings=False,
        eos_token_id=257, bos_token_id=256,
    )  # fmt: skip
    model = tf.GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer.ln_f.weight.fill_(1.0)
        model.transformer.ln_f.bias.fill_(63**-0.5)  # an embedding then counts at its own place only, 8 times
        model.transformer.wpe.weight.copy_(torch.eye(64))
        for place in range(64):
            for rank in range(len(PIECES)):
                model.lm_head.weight[258 + (place + rank) % len(PIECES), place] = 1.0 - 0.08 * rank
            model.lm_head.weight[257, place] = 1.2 if place == 7 else -1.0
    model.generation_config = tf.GenerationConfig(eos_token_id=257)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module")
def trace(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples of six tokens: the likeliest ones, and an end."""
    path = tmp_path_factory.mktemp("trace") / "run.trace"
    flags = ["--top-k", "1", "--seed", "3", "-n", "2", "--trace-width", "40", "--no-stdin"]
    assert main(["run", "abc", "--raw", "-m", folder, *flags, "--trace", str(path)]) == 0
    return path


pytestmark = pytest.mark.usefixtures("no_stdin")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["replay", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["replay", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def test_no_option_gives_the_run_again(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, str(trace))
    assert (found["schema"], found["sample"], found["seed"]) == (1, 0, 3)
    assert (found["first_difference"], found["undecided"], found["changed"]) == (None, [], [])
    assert found["file"] == str(trace)
    assert [token["id"] for token in found["tokens"]] == [token["recorded_id"] for token in found["tokens"]]
    assert [token["text"] for token in found["tokens"]] == ["[/b]", "\x1b[2J", "中\u202e", " Paris", " Lyon", "<|end|>"]


def test_the_page_lists_every_key(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "trace.md").read_text("utf-8")
    section = page[page.index("## The JSON of a replay") :]
    found = document(capsys, str(trace))
    rows = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(found)
    named = section[section.index("A token has") :]
    assert set(re.findall(r"`(\w+)`", named)) - {"null"} == set(found["tokens"][0])


def test_what_other_settings_would_have_chosen(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, str(trace), "--top-k", "4", "--sample", "1")
    differing = [token["index"] for token in found["tokens"] if token["differs"]]
    assert (found["sample"], found["seed"], found["changed"]) == (1, 4, ["top_k"])
    assert found["settings"]["top_k"] == {"value": 4, "origin": "flag --top-k"}
    assert found["settings"]["seed"] == {"value": 3, "origin": "flag --seed"}
    assert found["first_difference"] == differing[0]
    token = found["tokens"][differing[0]]
    assert set(token) == {
        "index", "id", "text", "recorded_id", "recorded_text", "is_decided", "differs", "reason",
    }  # fmt: skip
    assert (token["is_decided"], token["reason"]) == (True, None)
    assert token["text"] in PIECES
    assert token["text"] != token["recorded_text"]


def test_it_is_what_a_run_with_those_settings_does_up_to_the_first_difference(
    folder: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in (["--top-k", "3"], ["--top-k", "0"], ["--top-k", "0", "-t", "0.6"], ["--top-k", "4", "--seed", "8"]):
        found = document(capsys, str(trace), *flags)
        first = found["first_difference"]
        assert first is not None
        seed = [] if "--seed" in flags else ["--seed", "3"]
        assert main(["run", "abc", "--raw", "-m", folder, *flags, *seed, "--jsonl", "--no-stdin"]) == 0
        run = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        chosen = [line["id"] for line in run if line["event"] == "token"]
        for token in found["tokens"][: first + 1]:
            assert token["id"] in (None, chosen[token["index"]])
        assert found["tokens"][first]["is_decided"]


def test_other_random_numbers_count_from_the_seed_of_the_first_sample(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, str(trace), "--top-k", "4", "--seed", "20", "--sample", "1")
    assert (found["seed"], found["changed"]) == (21, ["top_k", "seed"])


def test_the_table_tells_what_changed_and_what_it_comes_to(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MKP-2, SEC-1"""
    lines = printed(capsys, str(trace), "--logit-bias", "259=9")
    assert lines == [
        "sample 0 of 2: logit_bias none -> 259=9",
        "   step  recorded                  replayed",
        '*     1  "[/b]"                    " Lyon"                   differs',
        "From here on a real run would go another way: each token is drawn given the recorded text.",
        '*     2  "\\x1b[2J"                 " Lyon"                   differs',
        '*     3  "中\\u202e"                " Lyon"                   differs',
        '*     4  " Paris"                  " Lyon"                   differs',
        '      5  " Lyon"                   " Lyon"',
        '*     6  special <|end|>           " Lyon"                   differs',
        'The first difference is at token 1: "[/b]" became " Lyon".',
    ]


def test_no_difference_is_said(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, str(trace), "--min-p", "0.5")
    assert lines[0] == "sample 0 of 2: min_p 0 -> 0.5"
    assert lines[-1] == "No difference."
    assert printed(capsys, str(trace), "--top-k", "1")[0] == "sample 0 of 2: the settings of the run, unchanged"


def test_what_is_not_decided_is_said(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All but 40 of 263 tokens are not kept, and at this temperature they share most of the mass."""
    lines = printed(capsys, str(trace), "--top-k", "0", "-t", "50", "--seed", "1")
    undecided = [line.split()[1] for line in lines if line.startswith("?")]
    assert undecided
    assert lines[-1].startswith(f"Not decided at {len(undecided)} token")
    assert f"({', '.join(undecided)}): the draw falls among the tokens that the trace does not keep; a run" in lines[-1]


@pytest.mark.parametrize("columns", [80, 40, 20, 10, 1])
def test_no_line_of_the_table_is_wider_than_the_terminal(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """TTY-14"""
    from rich.cells import cell_len

    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(capsys, str(trace), "--logit-bias", "259=9")
    table = [line for line in lines[1:-1] if not line.startswith("From here")]
    assert len(table) == 7
    assert max(cell_len(line) for line in table) <= columns
    if columns >= 20:
        assert all("Lyo" in line for line in table[1:])


def test_colour_is_asked_for(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(trace), "--top-k", "4", "--color", "always"]) == 0
    assert "\x1b[1m" in capsys.readouterr().out
    assert main(["replay", str(trace), "--top-k", "4"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--stop", "x"],
            "--stop ends a text, and a replay draws the recorded tokens again to their end: leave it out.",
        ),
        (["--max-new-tokens", "5"], "--max-new-tokens ends a text, and"),
        (["--ignore-eos"], "--ignore-eos ends a text, and"),
        (["--end-token-ids", "5"], "--end-token-ids ends a text, and"),
        (["--bad-words", "x"], "--bad-words needs the model's tokenizer, which a trace does not hold: ban their token"),
        (["--dry-sequence-breakers", "x"], "--dry-sequence-breakers needs the model's tokenizer, which a trace does"),
        (
            ["--dry-multiplier", "1"],
            "--dry-multiplier 1 needs the tokens of its breakers, and a run without DRY leaves",
        ),
        (["--order", "mlx", "--xtc-probability", "1"], "XTC spares line breaks with --order mlx, and this trace does"),
        (["--order", "hf", "--dry-multiplier", "0", "--min-p", "2"], "--min-p must be between 0 and 1, not 2."),
        (["--logit-bias", "263=1"], "--logit-bias must be token ids from 0 to 262, not 263."),
        (["--allowed-token-ids", "1,263"], "--allowed-token-ids must be token ids from 0 to 262, not 263."),
        (["--temperature", "nan"], "--temperature must be a number between 0 and 100, not"),
        (["--sample", "2"], "--sample must be a whole number between 0 and 1, not 2."),
        (["--sample", "-1"], "--sample must be a whole number, 0 or more, not -1."),
        (["--output", "{}"], "--output '{}' is the trace itself: give another file."),
        (["--frequency"], "No such option: --frequency"),
    ],
)
def test_what_a_replay_cannot_follow_is_refused(
    trace: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert main(["replay", str(trace), *(flag.format(trace) for flag in flags)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"minigen: {message.format(trace)}")


@pytest.mark.parametrize("content", [b"", b"hello\n", b'{"schema":1}\n'])
def test_another_kind_of_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert main(["replay", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"minigen: '{path}' is not a trace that minigen run --trace wrote")


def test_a_file_that_was_cut_off_is_read_with_a_warning(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.trace"
    whole = trace.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:4]) + whole[4][:50])
    assert main(["replay", str(path), "--top-k", "4", "-q"]) == 0
    out, err = capsys.readouterr()
    assert "ends early, after 2 tokens of sample 0; it is read as far as it goes.\n" in err
    assert len([line for line in out.splitlines() if line[:1] in " *?"]) == 3
    path.write_bytes(whole[0])
    assert main(["replay", str(path)]) == 2
    assert "ends before its first token: there is nothing to draw again." in capsys.readouterr().err


def test_standard_input_is_read(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(trace.read_bytes())))
    found = document(capsys, "-")
    assert (found["file"], found["first_difference"]) == ("-", None)


def test_a_file_takes_the_document(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "replay.json"
    assert main(["replay", str(trace), "--json", "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(target.read_text())["first_difference"] is None


def test_no_model_and_no_model_library_is_loaded(trace: Path) -> None:
    code = (
        "import sys\nfrom minigen.cli.app import main\n"
        f"assert main(['replay', {str(trace)!r}, '--top-k', '4', '--json']) == 0\n"
        "assert 'transformers' not in sys.modules, 'transformers'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.real_model
def test_the_default_model_is_replayed(
    default_model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.trace"
    flags = ["--seed", "3", "--max-new-tokens", "40", "--no-stdin", "--device", "cpu"]
    assert main(["run", "Tell me of the sea.", *flags, "--trace", str(path)]) == 0
    capsys.readouterr()
    for changes in ([], ["--temperature", "0.8", "--mirostat-eta", "0.2"]):
        found = document(capsys, str(path), *changes)
        assert (found["first_difference"], found["undecided"]) == (None, [])
    for changes in (["-t", "0.3"], ["--top-k", "5"], ["--top-p", "0.5"], ["--min-p", "0.1"], ["--seed", "2"]):
        found = document(capsys, str(path), *changes)
        first, again = found["first_difference"], [*flags, *changes, "--jsonl"]
        assert len(found["undecided"]) <= 1
        assert main(["run", "Tell me of the sea.", *again]) == 0
        chosen = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        for token in found["tokens"][: None if first is None else first + 1]:
            assert token["id"] in (None, chosen[token["index"]]["id"])
