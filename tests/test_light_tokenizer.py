"""A tokenizer without transformers, held against that library's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from minigen.generation.light_tokenizer import LightTokenizer, is_same
from minigen.generation.model import Model
from minigen.generation.prompt import encode_chat, encode_raw
from minigen.generation.text import decode_new
from stubs import byte_tokenizer, sentencepiece_tokenizer, wordpiece_tokenizer
from transformers import AutoTokenizer

KINDS = {"bytes": byte_tokenizer, "sentencepiece": sentencepiece_tokenizer, "wordpiece": wordpiece_tokenizer}
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}<|assistant|>"


def both(folder: Path, tokenizer: Any) -> tuple[LightTokenizer, Any]:
    """Save a tokenizer; give it as it is read without transformers, and with it."""
    tokenizer.save_pretrained(folder)
    return LightTokenizer(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_as_the_library_s_does(kind: str, tmp_path: Path) -> None:
    tokenizer = KINDS[kind]()
    tokenizer.chat_template = TEMPLATE
    light, full = both(tmp_path, tokenizer)
    assert is_same(light, full)
    for text in ("Hello wörld <|end|> x", " two\n\nlines ", "🙂é"):
        assert encode_raw(light, text) == encode_raw(full, text)
        ids = list(full.encode(text, add_special_tokens=False))
        assert decode_new(light, ids[:2], ids[2:]) == decode_new(full, ids[:2], ids[2:])
        chat = [{"role": "user", "content": text}]
        assert encode_chat(light, chat) == encode_chat(full, chat)


def test_the_default_model_s_is_the_same(default_model: Model) -> None:
    assert default_model.path is not None
    assert is_same(LightTokenizer(default_model.path), default_model.tokenizer)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: changed(folder / "tokenizer_config.json", unk_token="<|end|>"),
        lambda folder: changed(folder / "tokenizer_config.json", chat_template="{{ messages }}"),
        lambda folder: (folder / "chat_template.jinja").write_text("{{ eos_token }}"),
        lambda folder: shuffled(folder / "tokenizer.json"),
    ],
    ids=["special", "template", "template file", "vocabulary"],
)
def test_another_tokenizer_is_told_apart(change: Any, tmp_path: Path) -> None:
    _, full = both(tmp_path, byte_tokenizer())
    change(tmp_path)
    assert not is_same(LightTokenizer(tmp_path), full)


def changed(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def shuffled(path: Path) -> None:
    """Exchange the ids of two tokens."""
    told = json.loads(path.read_text())
    vocab = told["model"]["vocab"]
    one, other = "a", "b"
    vocab[one], vocab[other] = vocab[other], vocab[one]
    path.write_text(json.dumps(told))


@pytest.mark.parametrize("damage", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_is_an_error_of_the_usual_kinds(damage: str, tmp_path: Path) -> None:
    byte_tokenizer().save_pretrained(tmp_path)
    (tmp_path / damage).write_text("{")
    with pytest.raises(ValueError):  # noqa: PT011 - the libraries say what is wrong
        LightTokenizer(tmp_path)
    (tmp_path / damage).unlink()
    with pytest.raises((OSError, ValueError)):
        LightTokenizer(tmp_path)


def test_transformers_is_not_imported() -> None:
    program = "import sys, minigen.generation.light_tokenizer; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
