"""`minigen tokens` as a user meets it: ids, pieces, bytes, special tokens, and the chat template's own."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from minigen.cli.app import main
from minigen.cli.text_schemas import TOKENS
from minigen.cli.token_lists import count, tokens_table
from minigen.generation.origins import PromptToken, chat_tokens, raw_tokens
from minigen.generation.prompt import encode_chat, encode_raw
from rich.cells import cell_len
from rich.console import Console
from stubs import CHAT_TEMPLATE, byte_tokenizer, sentencepiece_tokenizer, wordpiece_tokenizer
from tiny_folders import tiny_folder, without_template

SPELT = "a<|end|>\n user: 🤖"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"), bos=True)


pytestmark = pytest.mark.usefixtures("no_stdin")


def tokens(folder: Path, *arguments: str) -> int:
    return main(["tokens", "-m", str(folder), *arguments])


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    Draft202012Validator(TOKENS).validate(found)
    return found


def column(found: dict[str, Any], name: str) -> list[Any]:
    return [token[name] for token in found["tokens"]]


def test_a_raw_prompt_is_cut_as_a_run_reads_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tokens(folder, SPELT, "--json") == 0
    found = document(capsys)
    assert column(found, "id") == list(encode_raw(byte_tokenizer(bos=True), SPELT).ids)
    assert "".join(column(found, "text")) == SPELT
    assert bytes.fromhex("".join(column(found, "bytes"))) == SPELT.encode()
    assert [token["text"] for token in found["tokens"] if token["special"]] == ["", "<|end|>"]
    assert column(found, "origin") == ["tokenizer", *["text"] * (len(found["tokens"]) - 1)]
    assert found["tokens"][0]["piece"] == "<|bos|>"
    assert found["tokens"][4]["piece"] == "Ġ"
    size = len(SPELT.encode())
    num = size - len("<|end|>") + 1
    assert found["counts"] == {
        "tokens": num + 1,
        "special_tokens": 2,
        "text_tokens": num,
        "bytes": size,
        "words": 3,
        "tokens_per_byte": num / size,
        "tokens_per_word": num / 3,
    }


def test_in_a_chat_the_template_s_tokens_are_told_from_the_user_s(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CHT-1: what the user spells is ordinary text, and his."""
    assert tokens(folder, SPELT, "--chat", "--system", "Be <|bos|>.", "--json") == 0
    found = document(capsys)
    messages = [{"role": "system", "content": "Be <|bos|>."}, {"role": "user", "content": SPELT}]
    assert column(found, "id") == list(encode_chat(byte_tokenizer(chat_template=CHAT_TEMPLATE), messages).ids)
    parts = [
        ("template", "<|bos|>system: "),
        ("system", "Be <|bos|>."),
        ("template", "<|end|>\nuser: "),
        ("user", SPELT),
        ("template", "<|end|>\nassistant: "),
    ]
    assert "".join(column(found, "text")) == "".join(text for _, text in parts)
    by_origin: list[tuple[str, str]] = []
    for token in found["tokens"]:
        if by_origin and by_origin[-1][0] == token["origin"]:
            by_origin[-1] = (token["origin"], by_origin[-1][1] + token["text"])
        else:
            by_origin.append((token["origin"], token["text"]))
    assert by_origin == parts
    assert {token["origin"] for token in found["tokens"] if token["special"]} == {"template"}
    assert (found["mode"], found["system"]) == ("chat", "Be <|bos|>.")
    assert found["counts"]["text_tokens"] == len(SPELT.encode())


def test_a_token_of_template_and_text_together_is_mixed() -> None:
    tokenizer = byte_tokenizer([": a"])
    found = chat_tokens(
        tokenizer, [{"role": "user", "content": "a"}], "{{ messages[0]['role'] }}: a{{ messages[0]['content'] }}"
    )
    assert [one.origin for one in found if one.text == ": a"] == ["template"]
    found = chat_tokens(tokenizer, [{"role": "user", "content": "ab"}], "x: {{ messages[0]['content'] }}")
    assert [(one.text, one.origin) for one in found] == [("x", "template"), (": a", "mixed"), ("b", "user")]


def test_a_template_that_changes_the_text_leaves_its_origin_open() -> None:
    template = "> {{ messages[0]['content'] | upper }}"
    found = chat_tokens(byte_tokenizer(), [{"role": "user", "content": "abc"}], template)
    assert {one.origin for one in found} == {None}
    assert "".join(one.text for one in found) == "> ABC"


def test_each_kind_of_tokenizer_is_shown_as_it_stores_its_pieces() -> None:
    spm = raw_tokens(sentencepiece_tokenizer(), "a 🤖")
    assert [one.piece for one in spm] == ["<s>", "▁", "a", "▁", "<0xF0>", "<0x9F>", "<0xA4>", "<0x96>"]
    assert [one.raw.hex() for one in spm] == ["", "", "61", "20", "f0", "9f", "a4", "96"]
    assert [one.is_special for one in spm] == [True, *[False] * 7]
    words = raw_tokens(wordpiece_tokenizer(), "hello  tokenizer")
    assert [(one.piece, one.text) for one in words] == [
        ("hello", "hello"),
        ("token", "  token"),
        ("##izer", "izer"),
    ]


def test_an_id_beyond_the_tokenizer_has_no_piece() -> None:
    from minigen.generation.pieces import Spelling

    spelling = Spelling(byte_tokenizer())
    assert (spelling.piece(999), spelling.raw(999)) == (None, b"")


def test_the_table_shows_what_the_document_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-1, MKP-1"""
    text = "[/x]\x1b🤖"
    assert tokens(folder, text) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [line.split() for line in captured.out.splitlines()] == [
        ["id", "piece", "text", "from", "bytes"],
        ["1", "256", "<|bos|>", "special", "<|bos|>", "tokenizer"],
        ["2", "91", "[", '"["', "text", "5b"],
        ["3", "47", "/", '"/"', "text", "2f"],
        ["4", "120", "x", '"x"', "text", "78"],
        ["5", "93", "]", '"]"', "text", "5d"],
        ["6", "27", "ě", '"\\x1b"', "text", "1b"],
        ["7", "240", "ð", "-", "text", "f0"],
        ["8", "159", "Ł", "-", "text", "9f"],
        ["9", "164", "¤", "-", "text", "a4"],
        ["10", "150", "ĸ", '"🤖"', "text", "96"],
        [],
        [
            "10",
            "tokens",
            "(1",
            "special)",
            "·",
            "9",
            "of",
            "the",
            "text",
            "·",
            "9",
            "bytes",
            "·",
            "1.000",
            "tokens",
            "per",
            "byte",
        ],
        ["9.00", "tokens", "per", "word"],
    ]


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80, 200])
def test_the_table_holds_at_any_width(width: int) -> None:
    """TTY-13, TTY-14, SEC-1"""
    hostile = ["[/x]", "\x1b[2J", "中文字", "👩‍🔬", "\u202e", "e\u0301"]
    found = [
        PromptToken(
            token_id=100000 + i, piece=text, text=text, raw=text.encode() * 9, is_special=i == 0, origin="template"
        )
        for i, text in enumerate(hostile)
    ]
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(tokens_table(found, count(found, "abc"), width), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines.index("") == len(hostile) + 1
    assert max(map(cell_len, lines)) <= width
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines))
    if width >= 20:
        assert "templ" in lines[1]
        assert "spec" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "The text is empty."),
        ([], 'There is no text: give one as an argument (minigen tokens "...")'),
        (["x", "--system", "y"], "--system needs --chat"),
        (["x", "--chat-template", "-", "--no-stdin"], "--no-stdin forbids it"),
        (["-", "--chat-template", "-"], "Standard input can be read only once: give - in one place.\n"),
        (["x", "-f", "no-such-file"], "cannot be read"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_loaded(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokens", "-m", "no/such-model", "--offline", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_a_model_without_a_template_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = without_template(tiny_folder(tmp_path))
    assert tokens(folder, "x", "--chat") == 2
    assert capsys.readouterr().err == (
        f"minigen: The model {folder.name} has no chat template: give one with --chat-template FILE, "
        "or leave --chat out.\n"
    )
    (folder / "t.jinja").write_text("<{{ messages[-1]['content'] }}>")
    assert tokens(folder, "x", "--chat-template", str(folder / "t.jinja"), "--json") == 0
    assert column(document(capsys), "origin") == ["template", "user", "template"]


def test_the_weights_are_not_loaded(folder: Path) -> None:
    code = (
        "import sys, torch\nfrom minigen.cli.app import main\n"
        "import transformers\n"
        "def refuse(*given, **named): raise AssertionError('weights')\n"
        "transformers.AutoModelForCausalLM.from_pretrained = refuse\n"
        f"code = main(['tokens', '-m', {str(folder)!r}, 'Hi', '--no-stdin'])\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.real_model
def test_the_default_model_s_tokens(capsys: pytest.CaptureFixture[str], default_model: Any) -> None:
    assert main(["tokens", "Hello 🤖", "--chat", "--json", "--no-stdin"]) == 0
    found = document(capsys)
    ids = encode_chat(default_model.tokenizer, [{"role": "user", "content": "Hello 🤖"}]).ids
    assert column(found, "id") == list(ids)
    assert [token["text"] for token in found["tokens"] if token["origin"] == "user"] == ["Hello", " ", "", "🤖"]
