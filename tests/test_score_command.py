"""`minigen score` as a user meets it: numbers, tables, JSON, exit codes, files and pipes."""

import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from jsonschema import Draft202012Validator
from minigen.cli.app import app, main
from minigen.cli.score_plan import split_options
from minigen.cli.score_tables import TokenTable, options_table, surprising_table
from minigen.cli.text_schemas import DIFF, EXPECT, OPTION, OPTIONS, SCORE, SCORED_TOKEN, TOKENS
from minigen.cli.token_names import TokenNames
from minigen.generation.continuations import Continuation
from minigen.generation.errors import UsageError
from minigen.generation.pieces import Lines, cut
from minigen.generation.scoring import Score
from processes import with_closed_output
from rich.cells import cell_len
from rich.console import Console
from stubs import byte_tokenizer
from tiny_folders import plain_logprobs, tiny_folder, without_template

TEXT = "Hi [/INST] é🤖\r\n\t\x1b[2J!"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"))


pytestmark = pytest.mark.usefixtures("no_stdin")


def score(folder: Path, *arguments: str) -> int:
    return main(["score", "-m", str(folder), "--device", "cpu", *arguments])


def document(capsys: pytest.CaptureFixture[str], schema: dict[str, Any]) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line, parse_constant=refuse)
    Draft202012Validator(schema).validate(found)
    return found


# --- a text


def test_the_document_equals_plain_transformers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """STA-7"""
    assert score(folder, TEXT, "--json") == 0
    found = document(capsys, SCORE)
    ids = list(TEXT.encode())
    rows = plain_logprobs(folder, ids)
    assert [token["id"] for token in found["tokens"]] == ids
    assert "".join(token["text"] for token in found["tokens"]) == TEXT == found["text"]
    first, *others = found["tokens"]
    assert {first[name] for name in ("logprob", "rank", "surprisal", "expected", "expected_id")} == {None}
    for place, token in enumerate(others, start=1):
        own = float(rows[place - 1, ids[place]])
        assert token["logprob"] == pytest.approx(own, abs=1e-4)
        assert token["surprisal"] == pytest.approx(-own / math.log(2), abs=2e-4)
        assert token["rank"] == 1 + int((rows[place - 1] > own + 1e-6).sum())
        assert token["expected_id"] == int(rows[place - 1].argmax())
        assert token["expected"] == byte_tokenizer().decode([token["expected_id"]])
    mean = float(rows[:-1].gather(-1, torch.tensor(ids)[1:, None]).mean())
    assert found["perplexity"] == pytest.approx(math.exp(-mean), rel=1e-4)
    assert found["bits_per_byte"] == pytest.approx(-mean / math.log(2) * (len(ids) - 1) / len(ids), rel=1e-4)
    assert (found["window"], found["stride"], found["num_windows"], found["context"]) == (128, 64, 1, None)
    counts = {"context_tokens": 0, "text_tokens": len(ids), "scored_tokens": len(ids) - 1, "total_tokens": len(ids)}
    assert found["usage"] == counts


def test_a_context_is_not_scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(folder, "world", "--context", "Hello ", "--json") == 0
    found = document(capsys, SCORE)
    ids = list(b"Hello world")
    rows = plain_logprobs(folder, ids)
    theirs = [float(rows[place - 1, ids[place]]) for place in range(6, 11)]
    assert [token["logprob"] for token in found["tokens"]] == pytest.approx(theirs, abs=1e-4)
    assert found["context"] == "Hello "
    assert found["usage"]["context_tokens"] == 6


def test_a_chat_s_context_is_a_turn_in_the_template(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(folder, "Fine.", "--context", "How are you?", "--chat", "--system", "Be kind.", "--json") == 0
    found = document(capsys, SCORE)
    before = [256, *b"system: Be kind.", 257, *b"\nuser: How are you?", 257, *b"\nassistant: "]
    assert found["usage"]["context_tokens"] == len(before)
    rows = plain_logprobs(folder, [*before, *b"Fine."])
    assert found["tokens"][0]["logprob"] == pytest.approx(float(rows[len(before) - 1, ord("F")]), abs=1e-4)
    assert (found["mode"], found["system"]) == ("chat", "Be kind.")


def test_a_start_token_gives_the_first_token_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_folder(tmp_path, bos=True)
    assert score(folder, "a", "--json") == 0
    found = document(capsys, SCORE)
    (token,) = found["tokens"]
    assert token["logprob"] == pytest.approx(float(plain_logprobs(folder, [256, 97])[0, 97]), abs=1e-4)
    assert found["usage"]["context_tokens"] == 1
    assert found["perplexity"] == pytest.approx(math.exp(-token["logprob"]))


def test_one_token_alone_has_no_mean(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(folder, "a", "--json") == 0
    found = document(capsys, SCORE)
    assert (found["logprob"], found["perplexity"], found["bits_per_byte"]) == (None, None, None)
    assert score(folder, "a") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no token could be scored: nothing stands before the first"


def test_special_tokens_in_the_text_are_scored_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(folder, "a<|end|>b", "--json") == 0
    assert [token["id"] for token in document(capsys, SCORE)["tokens"]] == [97, 257, 98]


def test_a_long_text_goes_through_a_window_that_is_stated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "The quick brown fox. " * 12
    assert score(folder, text, "--json", "--stride", "100") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["window"], found["stride"], found["num_windows"]) == (128, 100, 3)
    assert captured.err == (
        "minigen: the 252 tokens are more than the window of 128: they are read in 3 windows, stride 100, "
        "each token with at least 28 before it.\n"
    )
    ids, theirs, done = list(text.encode()), [], 1
    for begin in (0, 100, 200):
        end = min(begin + 128, len(ids))
        rows = plain_logprobs(folder, ids[begin:end])
        theirs += [float(rows[place - 1 - begin, ids[place]]) for place in range(done, end)]
        done = end
    assert [token["logprob"] for token in found["tokens"]][1:] == pytest.approx(theirs, abs=1e-4)
    assert score(folder, text, "-q", "--window", "64") == 0
    assert capsys.readouterr().err == ""


def test_the_most_surprising_tokens_have_line_and_column(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "é🤖x\r\n\tab\ny"
    assert score(folder, text, "--json", "--top-surprising", "4") == 0
    found = document(capsys, SCORE)
    listed = found["top_surprising"]
    assert [one["surprisal"] for one in listed] == sorted((one["surprisal"] for one in listed), reverse=True)
    starts = [0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    at = [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 1), (2, 2), (2, 3), (2, 4), (3, 1)]
    for one in listed:
        assert (one["line"], one["column"]) == at[starts[one["index"]]]
        assert one["surprisal"] == found["tokens"][one["index"]]["surprisal"]
    assert score(folder, text, "--top-surprising", "4") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["line:col", "surprisal", "token", "expected"]
    assert [line.split()[:2] for line in out[1:5]] == [
        [f"{one['line']}:{one['column']}", f"{one['surprisal']:.2f}"] for one in listed
    ]


def test_the_table_shows_every_token_and_then_the_sums(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MKP-1, SEC-1: on standard output, escaped in a pipe as well, and nothing on standard error."""
    assert score(folder, TEXT, "--json") == 0
    found = document(capsys, SCORE)
    assert score(folder, TEXT) == 0
    captured = capsys.readouterr()
    title, *rows = captured.out.splitlines()
    assert captured.err == ""
    assert title.split() == ["token", "log", "p", "rank", "surprisal", "expected"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", captured.out)
    for number, (row, token) in enumerate(zip(rows, found["tokens"], strict=False), start=1):
        assert row.split()[0] == str(number)
        if number > 1:
            numbers = f"{token['logprob']:.4f} {token['rank']} {token['surprisal']:.2f}"
            assert numbers in " ".join(row.split())
    num = len(found["tokens"])
    assert rows[num] == ""
    assert " ".join(rows[num + 1 :]).replace(" · ", " ") == (
        f"{num - 1} of {num} tokens scored log p {found['logprob']:.4f} perplexity {found['perplexity']:.6g} "
        f"{found['bits_per_byte']:.4f} bits per byte"
    )


# --- continuations


def test_options_are_ranked_by_the_whole_and_by_the_token(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(folder, "It is", "--options", " red, green", "--options", " a\\, b", "--json") == 0
    found = document(capsys, OPTIONS)
    sums = {}
    for text in (" red", " green", " a, b"):
        ids = list(f"It is{text}".encode())
        rows = plain_logprobs(folder, ids)
        sums[text] = sum(float(rows[place - 1, ids[place]]) for place in range(5, len(ids)))
    assert [one["text"] for one in found["options"]] == sorted(sums, key=lambda text: -sums[text])
    mass = sum(map(math.exp, sums.values()))
    per_token = sorted(sums, key=lambda text: -sums[text] / len(text))
    for rank, one in enumerate(found["options"], start=1):
        text = one["text"]
        assert one["logprob"] == pytest.approx(sums[text], abs=1e-3)
        assert one["logprob_per_token"] == pytest.approx(sums[text] / len(text), abs=1e-3)
        assert one["prob"] == pytest.approx(math.exp(sums[text]), rel=1e-3)
        assert one["share"] == pytest.approx(math.exp(sums[text]) / mass, rel=1e-3)
        assert (one["rank"], one["num_tokens"]) == (rank, len(text))
        assert one["rank_per_token"] == per_token.index(text) + 1
    assert found["context"] == "It is"
    assert score(folder, "It is", "--options", " red, green") == 0
    title, first, _ = capsys.readouterr().out.splitlines()
    assert title.split() == ["option", "log", "p", "per", "token", "tokens", "share"]
    assert first.startswith('1  " red"' if sums[" red"] > sums[" green"] else '1  " green"')


def test_options_are_parted_at_commas_and_spaces_are_kept() -> None:
    assert split_options(["a\\\\,b", "c\\\\", "d\\\\\\,e\\n"]) == ("a\\", "b", "c\\", "d\\,e\\n")
    assert split_options([" Paris, Lyon", "a\\,b,c"]) == (" Paris", " Lyon", "a,b", "c")
    for values, message in ((["a,,b"], "empty"), ([""], "separated by commas, such as"), (["a,b", "a"], "'a' twice")):
        with pytest.raises(UsageError, match=message):
            split_options(values)


def test_what_is_expected_decides_the_exit_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = plain_logprobs(folder, list(b"It is!"))
    prob = math.exp(float(rows[4, ord("!")]))
    above, below = ["--min-prob", f"{prob * 1.01:.3g}"], ["--min-prob", f"{prob * 0.99:.3g}"]
    assert score(folder, "It is", "--expect", "!", *below) == 0
    assert capsys.readouterr().out == f'yes: "!" has probability {prob:.4g}, at least {prob * 0.99:.3g}\n'
    assert score(folder, "It is", "--expect", "!", *above) == 1
    line = capsys.readouterr().out
    assert line.startswith(f'no: "!" has probability {prob:.4g}, below {prob * 1.01:.3g}; expected ')
    assert score(folder, "It is", "--expect", "!", *above, "-q") == 1
    assert capsys.readouterr() == ("", "")
    assert score(folder, "It is", "--expect", "!", *above, "--json") == 1
    found = document(capsys, EXPECT)
    assert found["passed"] is False
    assert found["prob"] == pytest.approx(prob, rel=1e-3)
    assert score(folder, "It is", "--expect", "!", "--min-prob", "0") == 0


def test_the_probability_of_several_tokens_is_their_product(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(folder, "It", "--expect", " is", "--min-prob", "1", "--json") == 1
    found = document(capsys, EXPECT)
    assert found["prob"] == pytest.approx(math.prod(math.exp(one["logprob"]) for one in found["tokens"]))


# --- usage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "--min-prob", "0.5"], "--min-prob 0.5 needs --expect"),
        (["x", "--expect", "y"], "--expect needs --min-prob"),
        (["x", "--expect", "", "--min-prob", "0.5"], "--expect must be a text"),
        (["x", "--expect", "y", "--min-prob", "1.5"], "--min-prob must be between 0 and 1, not 1.5"),
        (["x", "--options", "a,,b"], "--options holds an empty text: separate the texts by single commas."),
        (["x", "--options", ""], "--options must be texts separated by commas, such as \" Paris, Lyon\", not ''."),
        (["x", "-y"], 'No such option: -y. A text that starts with a dash goes after --: minigen score -- "-y ..."'),
        (["x", "y"], "A text of several words goes in quotes"),
        (["x", "--options", "a", "--expect", "b", "--min-prob", "0.5"], "--options and --expect contradict"),
        (["x", "--options", "a", "--context", "b"], "--options and --context contradict"),
        (["x", "--options", "a", "--top-surprising", "3"], "--options and --top-surprising contradict"),
        (["x", "--top-surprising", "0"], "--top-surprising must be a whole number, 1 or more, not 0"),
        (["x", "--stride", "0"], "--stride must be a whole number, 1 or more, not 0"),
        (["x", "--window", "1"], "--window must be a whole number, 2 or more, not 1"),
        (["x", "--window", "3", "--stride", "4"], "--stride must be a whole number between 1 and 2, not 4"),
        (["x", "--device", "tpu"], "--device must be one of auto"),
        (["x", "--dtype", "fp16"], "--dtype must be one of auto"),
        (["x", "--chat"], "--chat needs a turn to answer"),
        (["x", "--system", "y"], "--system needs --chat"),
        (["x", "-q", "-v"], "--quiet and --verbose contradict"),
        ([""], "The text is empty."),
        ([], 'There is no text: give one as an argument (minigen score "...")'),
    ],
)
def test_wrong_usage_is_said_before_a_model_is_loaded(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "-m", "no/such-model", "--offline", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_a_window_beyond_the_model_s_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(folder, "x", "--window", "129") == 2
    assert capsys.readouterr().err == "minigen: --window must be a whole number between 2 and 128, not 129.\n"
    assert score(folder, "x", "--stride", "128") == 2
    assert capsys.readouterr().err == "minigen: --stride must be a whole number between 1 and 127, not 128.\n"
    assert score(folder, "x" * 126, "--options", " red") == 2
    assert "have 130 tokens, but the model's window is 128" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--context", "y"], ["--expect", "y", "--min-prob", "0.1"]])
def test_a_model_without_a_chat_template_is_said(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = without_template(tiny_folder(tmp_path))
    assert score(folder, "x", "--chat", *flags) == 2
    assert capsys.readouterr().err == f"minigen: The model {folder.name} has no chat template: leave --chat out.\n"
    assert score(folder, "x", "--chat", "--system", "z", *flags) == 2
    assert "has no chat template: leave --chat and --system out." in capsys.readouterr().err


def test_logits_that_are_no_numbers_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoModelForCausalLM

    folder = tiny_folder(tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[5] = math.nan
    model.save_pretrained(folder)
    assert score(folder, "abc", "--json") == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "non-finite logits before token 2" in err


def test_text_comes_from_argument_files_and_stdin(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """INP-10"""
    (tmp_path / "a.txt").write_bytes("é\r\n".encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\n"), encoding="utf-8"))
    assert score(folder, "typed {input}.", "-f", str(tmp_path / "a.txt"), "--json", "-o", str(tmp_path / "out")) == 0
    assert capsys.readouterr() == ("", "")
    assert json.loads((tmp_path / "out").read_text("utf-8"))["text"] == "typed é\n\npiped."


def test_nothing_is_written_over_a_file_when_scoring_fails(tmp_path: Path, folder: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("old")
    assert score(folder, "x", "--stride", "500", "-o", str(kept)) == 2
    assert (kept.read_text(), list(tmp_path.iterdir())) == ("old", [kept])


def test_help_needs_no_library_and_shows_examples() -> None:
    """MOD-14"""
    for command in ("score", "diff", "tokens"):
        code = (
            "import sys\nfrom minigen.cli.app import main\n"
            f"assert main(['{command}', '-h']) == 0\n"
            "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert f"Example: minigen {command} " in done.stdout


def test_a_closed_pipe_ends_quietly(folder: Path) -> None:
    """TTY-1"""
    assert with_closed_output("score", "a" * 100, "-m", str(folder)) == (b"", 0)


def test_the_page_lists_every_key_and_no_other() -> None:
    page = (Path(__file__).parent.parent / "docs" / "score.md").read_text("utf-8")
    sections = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    schemas = {
        "The document of a text": SCORE,
        "A scored token": SCORED_TOKEN,
        "The document of an expected text": EXPECT,
        "The document of a comparison": DIFF,
        "The document of a cut": TOKENS,
    }
    for title, schema in schemas.items():
        rows = re.findall(r"^\| (`[^|]+) \|", sections[title], re.MULTILINE)
        intro = re.match(r"\n(`schema`.*?) as above", sections[title])
        named = {name for row in [*rows, intro[1] if intro else ""] for name in re.findall(r"`(\w+)`", row)}
        assert named == set(schema["properties"]), title
        for inner in schema["properties"].values():
            for name in (inner.get("items") or inner).get("properties", {}):
                assert f"`{name}`" in page, (title, name)
    options = sections["The document of options"]
    rows = re.findall(r"^\| (`[^|]+) \|", options, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(OPTION["properties"])
    assert set(OPTIONS["properties"]) <= set(re.findall(r"`(\w+)`", options))


def test_the_page_names_options_that_exist() -> None:
    page = (Path(__file__).parent.parent / "docs" / "score.md").read_text("utf-8")
    command: Any = typer.main.get_command(app)
    known = {"--raw"}  # of minigen run
    for name in ("score", "diff", "tokens"):
        _, found, _ = command.resolve_command(typer.Context(command), [name])
        known |= {flag for parameter in found.params for flag in parameter.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)) <= known


def columns_of(page: str, section: str) -> set[str]:
    """The columns that the first table of a section explains."""
    sections = dict(re.findall(r"^## (\w+).*?\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    rows = re.findall(r"^\| (`[^|]+) \|", sections[section], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_page_explains_the_columns_that_the_tables_have(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "score.md").read_text("utf-8")
    for section, arguments in {
        "score": ["score", "It is"],
        "diff": ["diff", "-a", "It", "-b", "It is", "--text", " red"],
        "tokens": ["tokens", "It is", "--chat"],
    }.items():
        assert main([*arguments, "--no-stdin", "-m", str(folder)]) == 0
        title = capsys.readouterr().out.splitlines()[0]
        assert columns_of(page, section) | {"token"} >= set(re.split(r"\s{2,}", title.strip())), section
        assert all(name in title for name in columns_of(page, section)), section


# --- tables


def printed(table: Any, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(table, soft_wrap=True)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return stream.getvalue().splitlines()


HOSTILE = ["[/x]", "\x1b[2J", "中文字", "👩‍🔬", "e\u0301", "\u202e", "\n", " "]


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80, 200])
def test_every_table_holds_at_any_width(width: int) -> None:
    """TTY-13, TTY-14, MKP-2, SEC-1"""
    names = TokenNames(byte_tokenizer(HOSTILE))
    ids = range(258, 258 + len(HOSTILE))
    scores = [Score(token_id=ids[0])]
    scores += [
        Score(token_id=i, logprob=-12345.678, rank=49152, expected_id=ids[-1], expected_logprob=-0.1) for i in ids[1:]
    ]
    text = "".join(HOSTILE)
    pieces = cut(byte_tokenizer(HOSTILE), text, list(ids))
    options = [Continuation(text=one, scores=(scores[1],), rank=i) for i, one in enumerate(HOSTILE, start=1)]
    tables = [
        TokenTable(100000, 50000, names).block(scores, width),
        surprising_table(range(len(ids)), scores, pieces, Lines(text), names, width),
        options_table(options, width),
    ]
    for table in tables:
        lines = printed(table, width)
        assert len(lines) == len(HOSTILE) + 1
        assert max(map(cell_len, lines)) <= width
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines))
    if width >= 20:
        rows = printed(tables[0], width)
        assert "surprisal" in rows[0]
        assert "17811.05" in rows[2]
    if width >= 40:
        assert "expected" in printed(tables[0], width)[0]
        assert "[/x]" in printed(tables[1], width)[1]


def test_the_blocks_of_a_table_line_up() -> None:
    names = TokenNames(byte_tokenizer())
    scores = [
        Score(token_id=97, logprob=-1.5 * i, rank=10**i, expected_id=98, expected_logprob=-0.5) for i in range(1, 5)
    ]
    whole, table = TokenTable(4, 50000, names), TokenTable(4, 50000, names)
    parts = [line for one in scores for line in printed(table.block([one], 80), 80)]
    assert parts == printed(whole.block(scores, 80), 80)


@pytest.mark.real_model
def test_the_default_model_knows_the_capital_of_france(capsys: pytest.CaptureFixture[str], default_model: Any) -> None:
    text = "The capital of France is"
    assert main(["score", text, "--expect", " Paris", "--min-prob", "0.5", "--device", "cpu", "--no-stdin"]) == 0
    assert capsys.readouterr().out == 'yes: " Paris" has probability 0.7706, at least 0.5\n'
