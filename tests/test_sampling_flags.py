"""Every sampling flag reaches the sampler: the command writes what the plain loop writes under the same settings."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from minigen.cli.app import main
from minigen.generation.params import SamplingParams
from minigen.generation.simple import simple_generate
from stubs import byte_tokenizer, tiny_model, wordpiece_tokenizer

CASES: list[tuple[list[str], dict[str, Any]]] = [
    (["--top-n-sigma", "1.5"], {"top_n_sigma": 1.5}),
    (["--dynatemp-range", "0.5", "--dynatemp-exponent", "2"], {"dynatemp_range": 0.5, "dynatemp_exponent": 2}),
    (["--epsilon-cutoff", "0.01"], {"epsilon_cutoff": 0.01}),
    (["--eta-cutoff", "0.05"], {"eta_cutoff": 0.05}),
    (["--xtc-probability", "1", "--xtc-threshold", "0.01"], {"xtc_probability": 1, "xtc_threshold": 0.01}),
    (["--mirostat-tau", "1", "--mirostat-eta", "0.5"], {"mirostat_tau": 1, "mirostat_eta": 0.5}),
    (["--min-new-tokens", "9", "--end-token-ids", "101,105"], {"min_new_tokens": 9, "end_token_ids": [101, 105]}),
    (["--bad-words", "e", "--bad-words", "th"], {"bad_words": ["e", "th"]}),
    (["--allowed-token-ids", "97,98", "--allowed-token-ids", "99"], {"allowed_token_ids": [97, 98, 99]}),
    (
        ["-t", "0", "--dry-multiplier", "5", "--dry-base", "1.2", "--dry-allowed-length", "1", "--dry-range", "9",
         "--dry-sequence-breakers", "a", "--dry-sequence-breakers", "\n"],
        {"temperature": 0, "dry_multiplier": 5, "dry_base": 1.2, "dry_allowed_length": 1, "dry_range": 9,
         "dry_sequence_breakers": ["a", "\n"]},
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model with a tokenizer of bytes."""
    path = tmp_path_factory.mktemp("tiny")
    tiny_model(vocab_size=258).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture(autouse=True)
def _no_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield


@pytest.mark.parametrize(("flags", "given"), CASES, ids=[flags[0] for flags, _ in CASES])
def test_a_flag_does_what_its_setting_does(
    flags: list[str], given: dict[str, Any], model_folder: str, tmp_path: Path
) -> None:
    preset, out = tmp_path / "plain.yaml", tmp_path / "out.txt"
    preset.write_text("extends: null\nsampling: {max_new_tokens: 24}\n")
    arguments = ["run", "Once upon", "--raw", "-p", str(preset), "-m", model_folder, "--seed", "6", "-o", str(out)]
    assert main([*arguments, "--device", "cpu", "--dtype", "float32", *flags]) == 0
    model, tokenizer = tiny_model(vocab_size=258), byte_tokenizer()
    params = SamplingParams(**{"max_new_tokens": 24, "seed": 6} | given)
    plain = SamplingParams(max_new_tokens=24, seed=6, temperature=params.temperature)
    expected = simple_generate(model, tokenizer, "Once upon", sampling_params=params)
    assert out.read_text("utf-8") == expected
    assert expected != simple_generate(model, tokenizer, "Once upon", sampling_params=plain), "the setting shows"


WRONG = [
    (["--allowed-token-ids", "1,x"], "--allowed-token-ids must be token ids, 0 or more, separated by commas, not '1,"),
    (["--allowed-token-ids=-1"], "--allowed-token-ids must be token ids, 0 or more, not -1."),
    (["--end-token-ids", "", "--end-token-ids", "5"], "--end-token-ids must be token ids, 0 or more, separated by"),
    (["--end-token-ids", "5,"], "--end-token-ids must be token ids, 0 or more, separated by commas, not '5,'."),
    (["--bad-words", "", "--bad-words", "a"], "--bad-words must be at most 64 strings, none of them empty, not ['', "),
    (["--bad-words", "caf\udce9"], "The input must be UTF-8, and --bad-words has the byte 0xe9 at offset 3"),
    (["--dry-base", "0.5"], "--dry-base must be between 1 and 100, not 0.5."),
    (["--xtc-probability", "two"], "--xtc-probability must be a number between 0 and 1, not 'two'."),
    (["--min-new-tokens", "1.5"], "--min-new-tokens must be a whole number, 0 or more, not '1.5'."),
]


@pytest.mark.parametrize(("flags", "message"), WRONG, ids=[flags[0] for flags, _ in WRONG])
def test_a_wrong_value_names_its_flag(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x", *flags]) == 2
    assert capsys.readouterr().err.startswith(f"minigen: {message}")


@pytest.mark.parametrize("name", ["bad_words", "dry_sequence_breakers", "allowed_token_ids", "end_token_ids"])
def test_a_single_empty_value_empties_the_list_of_a_preset(
    name: str, model_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset, flag = tmp_path / "mine.yaml", "--" + name.replace("_", "-")
    preset.write_text(f"sampling: {{{name}: {'[97, 98]' if 'ids' in name else '[e, t]'}, max_new_tokens: 2}}\n")
    arguments = ["run", "x", "--raw", "-p", str(preset), "-m", model_folder, "--device", "cpu", "--json"]
    assert main([*arguments, flag, ""]) == 0
    given = json.loads(capsys.readouterr().out)["settings"][name]
    assert given == {"value": [], "origin": f"flag {flag}"}
    assert main(arguments) == 0
    assert len(json.loads(capsys.readouterr().out)["settings"][name]["value"]) == 2


def test_an_id_past_the_vocabulary_is_refused_before_the_load(
    model_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("sampling:\n  allowed_token_ids: [5, 999999]\n")
    monkeypatch.setattr("minigen.generation.model.load_model", None)  # would fail otherwise
    assert main(["run", "x", "-m", model_folder, "--allowed-token-ids", "5,258"]) == 2
    assert "--allowed-token-ids must be token ids from 0 to 257, not 258." in capsys.readouterr().err
    assert main(["run", "x", "-m", model_folder, "-p", str(preset)]) == 2
    assert f"{preset}:2: sampling.allowed_token_ids must be token ids from 0 to 257" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "name"), [("--bad-words", "bad word"), ("--dry-sequence-breakers", "sequence breaker")]
)
def test_a_typed_backslash_n_is_warned_of(flag: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "", flag, "\\n"]) == 2
    assert f"warning: the {name} '\\\\n' holds a backslash and an n" in capsys.readouterr().err


def test_a_bad_word_without_tokens_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = wordpiece_tokenizer()
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert main(["run", "hello", "--raw", "-m", str(tmp_path), "--bad-words", "語"]) == 2
    assert capsys.readouterr().err.endswith("bad_words must be texts that the tokenizer has tokens for, not '語'.\n")
