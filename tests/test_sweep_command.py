"""`minigen sweep` as a user meets it: texts, numbers, lines of JSON, exit codes, files and pipes."""

import io
import json
import math
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from jsonschema import Draft202012Validator
from minigen.cli.app import app, main
from minigen.cli.sweep_schema import COMBINATION, JSONL_SCHEMA, PARTING, TEXT
from minigen.generation.model import Model
from minigen.generation.ranges import MAX_SEED
from processes import COMMAND, with_closed_output
from stubs import byte_tokenizer, scripted_folder
from tiny_folders import plain_logprobs, tiny_folder

PAGE = Path(__file__).parent.parent / "docs" / "sweep.md"
Lines = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"))


pytestmark = pytest.mark.usefixtures("no_stdin")


def sweep(folder: Path, *arguments: str) -> int:
    return main(["sweep", "Hello world", "--raw", "-m", str(folder), "--device", "cpu", *arguments])


def records(text: str) -> Lines:
    """Give the lines of texts, in the order of combinations and seeds, and those of combinations."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    validator = Draft202012Validator(JSONL_SCHEMA)
    for line in lines:
        validator.validate(line)
    num_texts = sum(line["event"] == "text" for line in lines)
    assert [line["event"] for line in lines[num_texts:]] == ["combination"] * (len(lines) - num_texts)
    texts = sorted(lines[:num_texts], key=lambda line: (line["combination"], line["sample"]))
    return texts, lines[num_texts:]


def grams(ids: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return list(zip(*(ids[i:] for i in range(size)), strict=False))


# --- texts and numbers

GRID = ["--temperature", "0.5, 1.1", "--top-p", "0.7,1", "--seeds", "3", "--seed", "5", "--max-new-tokens", "12"]


@pytest.fixture(scope="module")
def swept(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Lines:
    path = tmp_path_factory.mktemp("swept") / "lines"
    assert sweep(folder, *GRID, "--no-stdin", "--jsonl", "-o", str(path)) == 0
    return records(path.read_text("utf-8"))


def test_every_combination_is_there_with_the_same_seeds(swept: Lines) -> None:
    texts, combinations = swept
    values = [{"temperature": t, "top_p": p} for t in (0.5, 1.1) for p in (0.7, 1.0)]
    assert [one["values"] for one in combinations] == values
    assert [(one["values"], one["seed"]) for one in texts] == [(each, seed) for each in values for seed in (5, 6, 7)]
    assert all(one["seeds"] == [5, 6, 7] for one in combinations)


def test_each_text_is_that_of_a_run_with_the_same_settings(
    folder: Path, swept: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    """RNG-1: nothing beside a text changes it."""
    for one in swept[0]:
        settings = ["-t", str(one["values"]["temperature"]), "--top-p", str(one["values"]["top_p"])]
        arguments = ["--raw", "-m", str(folder), *settings, "--seed", str(one["seed"]), "--max-new-tokens", "12"]
        assert main(["run", "Hello world", "--device", "cpu", *arguments, "--json"]) == 0
        alone = json.loads(capsys.readouterr().out)
        for key in ("text", "finish_reason", "stop", "usage", "seed"):
            assert one[key] == alone[key], key
        (summary,) = [each for each in swept[1] if each["combination"] == one["combination"]]
        expected = alone["settings"] | {"seed": {"value": 5, "origin": "flag --seed"}}
        assert summary["settings"] == expected


def test_the_numbers_of_texts_equal_plain_transformers(folder: Path, swept: Lines) -> None:
    """STA-7"""
    prompt = list(b"Hello world")
    for one in swept[0]:
        ids = one["token_ids"]
        rows = plain_logprobs(folder, [*prompt, *ids])
        own = [float(rows[len(prompt) - 1 + place, token_id]) for place, token_id in enumerate(ids)]
        assert one["logprob_per_token"] == pytest.approx(sum(own) / len(own), abs=1e-4)
        for size in (1, 2):
            found = grams(ids, size)
            assert one[f"distinct_{size}"] == (pytest.approx(len({*found}) / len(found)) if found else None)
        counts = {"prompt_tokens": 11, "completion_tokens": len(ids), "total_tokens": 11 + len(ids)}
        assert one["usage"] == counts
        plain = byte_tokenizer().decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert one["text"] == plain
        assert one["finish_reason"] == ("stop" if ids[-1] in (2, 257) else "length")


def test_the_numbers_of_combinations_are_those_of_their_texts(swept: Lines) -> None:
    texts, combinations = swept
    first = texts[:3]
    for summary in combinations:
        own = [one for one in texts if one["combination"] == summary["combination"]]
        ids = [one["token_ids"] for one in own]
        num_tokens = sum(map(len, ids))
        total = sum(one["logprob_per_token"] * len(one["token_ids"]) for one in own)
        assert summary["logprob_per_token"] == pytest.approx(total / num_tokens)
        for size in (1, 2):
            found = [gram for each in ids for gram in grams(each, size)]
            assert summary[f"distinct_{size}"] == pytest.approx(len({*found}) / len(found))
        assert summary["tokens_per_text"] == pytest.approx(num_tokens / 3)
        reasons = [one["finish_reason"] for one in own]
        assert summary["finish_reasons"] == {reason: reasons.count(reason) for reason in reasons}
        assert (summary["num_texts"], summary["num_compared"], summary["ignores_seeds"]) == (3, 3, False)
        places = {}
        for one, other in zip(own, first, strict=True):
            pairs = zip(one["token_ids"], other["token_ids"], strict=False)
            places |= {one["seed"]: next((i for i, (a, b) in enumerate(pairs) if a != b), None)}
        listed = {each["seed"]: each["index"] for each in summary["partings"]}
        assert listed == {seed: place for seed, place in places.items() if place is not None}
        assert summary["first_difference"] == min(listed.values(), default=None)
        for each in summary["partings"]:
            (one,), (other,) = ([t for t in group if t["seed"] == each["seed"]] for group in (own, first))
            assert each["id"] == one["token_ids"][each["index"]]
            assert each["first_id"] == other["token_ids"][each["index"]]
            assert each["token"] == byte_tokenizer().decode([each["id"]])
    assert combinations[0]["partings"] == []
    assert any(summary["partings"] for summary in combinations)


def test_the_table_shows_the_numbers_of_the_lines(
    folder: Path, swept: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(folder, *GRID) == 0
    out, err = capsys.readouterr()
    title, *rows = out.splitlines()
    assert "\x1b" not in out
    assert (err.count("\n") <= 1, max(map(len, [title, *rows])) <= 80) == (True, True)
    assert title.split()[:2] in (["temperature", "top_p"], ["temp…", "top_p"])
    for row, one in zip(rows, swept[1], strict=False):
        shown = [f"{one['logprob_per_token']:.4f}", f"{one['distinct_1']:.4f}", f"{one['distinct_2']:.4f}"]
        values = [f"{value:g}" for value in one["values"].values()]
        number = str(one["combination"] + 1)
        assert row.split()[:7] == [number, *values, *shown, f"{one['tokens_per_text']:.1f}"]
        place = one["first_difference"]
        if one["combination"] == 0:
            assert row.endswith(" first")
        elif place is None:
            assert row.endswith(" -")
        else:
            least = min(one["partings"], key=lambda each: each["index"])
            assert f" {place + 1}" in row
            assert f"{number} parts at token {place + 1} with seed {least['seed']}: " in " ".join(out.split())
    num_tokens = sum(len(one["token_ids"]) for one in swept[0])
    assert rows[-1] == f"12 texts · {num_tokens} tokens · seeds 5 to 7"


def test_a_smaller_sweep_writes_the_same_texts(folder: Path, swept: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    """RNG-1"""
    arguments = ["--top-p", "1", "-t", "1.1", "--seed", "7", "--max-new-tokens", "12"]
    assert sweep(folder, *arguments, "--jsonl") == 0
    (text,), (combination,) = records(capsys.readouterr().out)
    assert text["text"] == swept[0][-1]["text"]
    assert (text["values"], combination["values"]) == ({}, {})


def test_the_same_seed_is_the_same_text_until_a_setting_parts_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A filter that drops next to nothing parts no text; a sampler with a stream that moves would."""
    assert (
        sweep(folder, "--top-p", "1,0.9999999", "--seeds", "3", "-t", "0.6", "--max-new-tokens", "30", "--jsonl") == 0
    )
    texts, (_, other) = records(capsys.readouterr().out)
    assert [one["text"] for one in texts[:3]] == [one["text"] for one in texts[3:]]
    assert (other["partings"], other["first_difference"], other["num_compared"]) == ([], None, 3)


def test_the_last_list_moves_fastest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The order is that of the command line; a flag that comes again adds to its list."""
    assert sweep(folder, "--top-p", "0.7", "-t", "1.1, 0.5", "--top-p", "1", "--max-new-tokens", "1", "--jsonl") == 0
    _, combinations = records(capsys.readouterr().out)
    pairs = [(0.7, 1.1), (0.7, 0.5), (1.0, 1.1), (1.0, 0.5)]
    assert [[*one["values"].items()] for one in combinations] == [
        [("top_p", top_p), ("temperature", temperature)] for top_p, temperature in pairs
    ]


def test_a_model_that_runs_one_text_at_a_time_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import transformers as tf

    config = tf.BloomConfig(vocab_size=258, hidden_size=16, n_layer=1, n_head=2, bos_token_id=256, eos_token_id=257)
    tf.BloomForCausalLM(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    assert sweep(tmp_path, "-t", "0.5,1", "--seed", "3", "--max-new-tokens", "4", "--jsonl") == 0
    out, err = capsys.readouterr()
    assert err.count(f"minigen: {tmp_path.name} runs one request at a time: ") == 1
    assert len(records(out)[0]) == 2
    assert sweep(tmp_path, "-t", "0.5", "--seed", "3", "--max-new-tokens", "4", "-v") == 0
    assert "one request at a time" not in capsys.readouterr().err


def test_seeds_can_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--seed", f"9, 2,{MAX_SEED}", "--min-p", "0,0.1", "--max-new-tokens", "3"]
    assert sweep(folder, *given, "--jsonl") == 0
    texts, combinations = records(capsys.readouterr().out)
    assert [one["seed"] for one in texts] == [9, 2, MAX_SEED] * 2
    assert combinations[1]["seeds"] == [9, 2, MAX_SEED]
    assert sweep(folder, "--seed", str(MAX_SEED), "-n", "2", "--max-new-tokens", "3") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"seeds {MAX_SEED}, 0")


def test_a_chosen_seed_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(folder, "-t", "1,2", "--max-new-tokens", "3") == 0
    seed = re.search(r"· seed (\d+)$", capsys.readouterr().out)
    assert seed is not None
    assert sweep(folder, "-t", "1,2", "--max-new-tokens", "3", "--jsonl") == 0
    _, (combination, _) = records(capsys.readouterr().out)
    assert combination["settings"]["seed"]["origin"] == "chosen for this run"
    assert combination["settings"]["seed"]["value"] == combination["seeds"][0]


def test_a_text_that_no_seed_changes_is_written_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-t", "0,0.9", "--seed", "4", "--seeds", "3", "--max-new-tokens", "6"]
    assert sweep(folder, *arguments, "--jsonl") == 0
    out, err = capsys.readouterr()
    note = "minigen: temperature 0 takes the likeliest token whatever the seed: such a text is written once.\n"
    assert note in err
    texts, (greedy, warm) = records(out)
    assert [(one["combination"], one["seed"]) for one in texts] == [(0, 4), (1, 4), (1, 5), (1, 6)]
    assert (greedy["num_texts"], greedy["ignores_seeds"], greedy["finish_reasons"]) == (1, True, {"length": 1})
    ids = texts[0]["token_ids"]
    assert greedy["distinct_1"] == pytest.approx(len({*ids}) / 18), "it counts once for each seed"
    assert greedy["tokens_per_text"] == 6
    assert (warm["num_compared"], warm["num_texts"]) == (3, 3)
    for each in warm["partings"]:
        assert each["first_id"] == ids[each["index"]], "every seed is held against the one text"
    assert sweep(folder, "-t", "0", "-n", "1", "-q", "--max-new-tokens", "3") == 0
    assert capsys.readouterr().err == ""


def test_xtc_before_a_greedy_choice_still_depends_on_the_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = ["--xtc-probability", "0.5", "--xtc-threshold", "0.01"]
    arguments = ["-t", "0", "--order", "minigen,llama.cpp", *chance, "-n", "4", "--seed", "1", "--max-new-tokens", "8"]
    assert sweep(folder, *arguments, "--jsonl") == 0
    texts, (own, other) = records(capsys.readouterr().out)
    assert (own["values"], other["values"]) == ({"order": "minigen"}, {"order": "llama.cpp"})
    assert (own["ignores_seeds"], own["num_texts"]) == (True, 1)
    assert (other["ignores_seeds"], other["num_texts"]) == (False, 4)
    assert len({one["text"] for one in texts if one["combination"] == 1}) > 1


def test_a_text_that_is_cut_off_earlier_has_not_parted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(folder, "--max-new-tokens", "4,7", "-t", "0.5", "--seed", "3") == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split()[0].startswith("max")
    assert rows[2].split()[-1] == "-"


def test_settings_that_are_not_listed_work_as_in_a_run(
    folder: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = home / "mine.yaml"
    preset.write_text(
        "sampling:\n  temperature: 0.5\n  seed: 8\n  max_new_tokens: 9\nprompt:\n  template: 'Say: {input}'\n"
    )
    given = ["--preset", str(preset), "-m", str(folder), "--device", "cpu", "--logit-bias", "65=-1", "--stop", "q"]
    assert main(["sweep", "Hi", *given, "--system", "Be kind.", "--chat", "--top-k", "3,0", "--jsonl"]) == 0
    texts, (one, _) = records(capsys.readouterr().out)
    settings = {name: (each["value"], each["origin"]) for name, each in one["settings"].items()}
    assert settings["temperature"] == (0.5, f"preset mine ({preset}:2)")
    assert settings["top_k"] == (3, "flag --top-k")
    assert settings["logit_bias"] == ({"65": -1.0}, "flag --logit-bias")
    assert (settings["mode"], settings["stop"]) == (("chat", "flag --chat"), (["q"], "flag --stop"))
    assert [each["seed"] for each in texts] == [8, 8]
    before = [256, *b"system: Be kind.", 257, *b"\nuser: Say: Hi", 257, *b"\nassistant: "]
    assert texts[0]["usage"]["prompt_tokens"] == len(before)
    assert one["prompt"] == "Hi"


def test_every_setting_is_shown_with_v(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(folder, "-v", "-t", "1,2.5", "--seed", "4,9", "--top-k", "5", "--max-new-tokens", "2") == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().err.splitlines()]
    shown = {line[0]: " ".join(line[1].split()) for line in lines if len(line) == 2}
    assert shown["temperature"] == "1, 2.5 flag --temperature"
    assert shown["seed"] == "4, 9 flag --seed"
    assert shown["top_k"] == "5 flag --top-k"
    assert re.fullmatch(r"tokens · [\d.]+ s · [\d.]+ tok/s", shown["8"])


def test_the_prompt_comes_from_argument_files_and_stdin(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """INP-10"""
    (tmp_path / "a.txt").write_bytes("é\r\n".encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\n"), encoding="utf-8"))
    out = tmp_path / "out"
    arguments = ["--raw", "-m", str(folder), "-f", str(tmp_path / "a.txt"), "--max-new-tokens", "2", "-t", "1,2"]
    assert main(["sweep", "typed {input}.", *arguments, "--jsonl", "-o", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert {one["prompt"] for one in records(out.read_text("utf-8"))[1]} == {"typed é\n\npiped."}


def test_a_prompt_is_cut_once_for_each_room_that_is_left(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--raw", "-m", str(folder), "--truncate", "head", "--max-new-tokens", "2,4", "-t", "0.5,1"]
    assert main(["sweep", "x" * 300, *arguments, "--jsonl"]) == 0
    out, err = capsys.readouterr()
    assert [line for line in err.splitlines() if "warning" in line] == [
        "minigen: warning: the prompt is too long for the window of 128 tokens: "
        f"{300 - kept} tokens at its beginning were dropped, {kept} kept."
        for kept in (126, 124)
    ]
    assert [one["usage"]["prompt_tokens"] for one in records(out)[0]] == [126, 126, 124, 124]


# --- the texts themselves


def test_show_prints_every_text_above_the_table(folder: Path, swept: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-1: a report for people, in which nothing steers a terminal."""
    assert sweep(folder, *GRID, "--show") == 0
    out = capsys.readouterr().out
    texts, combinations = swept
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)
    place = 0
    for summary in combinations:
        names = " · ".join(f"{name} {value:g}" for name, value in summary["values"].items())
        place = out.index(f"{summary['combination'] + 1} · {names}\n", place)
        partings = {each["seed"]: each["index"] for each in summary["partings"]}
        for one in (one for one in texts if one["combination"] == summary["combination"]):
            count = len(one["token_ids"])
            parts = f" · parts at token {partings[one['seed']] + 1}" if one["seed"] in partings else ""
            heading = f"-- seed {one['seed']} · {count} token{'s' * (count != 1)} · {one['finish_reason']}{parts}\n"
            place = out.index(heading, place)
    assert out.index("log p") > place


def test_a_scripted_text_comes_out_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MKP-1, SEC-1: exact output at fixed width."""
    script = [*"one [/INST] \x1b[2J\ntwo 中".encode(), 257]
    path = str(scripted_folder(tmp_path, script, prompt_length=2, tokenizer=byte_tokenizer(), window=64))
    arguments = ["--raw", "-m", path, "-t", "0.2,0.4", "--seed", "3", "--show", "--stop", "two"]
    assert main(["sweep", "ab", *arguments]) == 0
    body = "one [/INST] \\x1b[2J\n"
    assert capsys.readouterr().out == (
        "1 · temperature 0.2\n"
        f"-- seed 3 · 20 tokens · stop\n{body}\n"
        "2 · temperature 0.4\n"
        f"-- seed 3 · 20 tokens · stop\n{body}\n"
        "   temperature  log p per token  distinct-1  distinct-2  tokens  ended  parts at\n"
        "1          0.2           0.0000      0.8500      1.0000    20.0  stop      first\n"
        "2          0.4           0.0000      0.8500      1.0000    20.0  stop          -\n"
        "\n"
        "2 texts · 40 tokens · seed 3\n"
    )


# --- usage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "-t", "0.2,101"], "--temperature must be between 0 and 100, not 101"),
        (["x", "-t", "0.2,nan"], "--temperature must be a number between 0 and 100, not nan"),
        (["x", "--top-p", "0.5,0"], "--top-p must be above 0 and at most 1, not 0"),
        (["x", "--top-k", "5,ten"], "--top-k must be a whole number, 0 or more, not 'ten'"),
        (["x", "--top-k", "5,1.5"], "--top-k must be a whole number, 0 or more, not '1.5'"),
        (["x", "-t", "0.2,,0.7"], "--temperature '0.2,,0.7' has a comma without a value"),
        (["x", "-t", "0.2,", "0.7"], "has a comma without a value"),
        (["x", "-t", ""], "--temperature must be a number between 0 and 100, or several separated by commas, not ''"),
        (["x", "-t", "0.2:1.0"], "a number between 0 and 100, or several separated by commas, not '0.2:1.0'"),
        (["x", "-t", "200"], "--temperature must be between 0 and 100, not 200."),
        (["x", "--order", "hf:mlx"], "llama.cpp, mlx, or several separated by commas, not 'hf:mlx'"),
        (["x", "-t", "1,1.0"], "--temperature names 1 twice"),
        (["x", "-t", "0.7, 0.70"], "--temperature names 0.7 twice"),
        (["x", "-t", "0.7", "-t", "0.7"], "--temperature names 0.7 twice"),
        (["x", "--seed", "1,2,1"], "--seed names 1 twice"),
        (["x", "--seed", "-1,2"], "--seed must be a whole number between 0 and 2^63-1, not -1"),
        (["x", "--seed", "1,9223372036854775808"], "--seed must be a whole number between 0 and 2^63-1, not 92233"),
        (["x", "--seed", "1,2", "--seeds", "2"], "--seed with several values and --seeds contradict"),
        (["x", "--seeds", "0"], "--seeds must be a whole number between 1 and 1024, not 0"),
        (["x", "--seeds", "1025"], "--seeds must be a whole number between 1 and 1024, not 1025"),
        (["x", "--order", "hf,gpt"], "--order must be one of minigen, hf, vllm, llama.cpp, mlx, not 'gpt'"),
        (["x", "--order", "hf,minigen", "-t", "0,1"], "temperature must be above 0 with order hf, not 0.0"),
        (["x", "y", "-t", "1"], "'y' is one argument too many: a prompt of several words goes in quotes"),
        (["x", "--jsonl", "--show"], "--jsonl and --show contradict"),
        (["x", "-q", "-v"], "--quiet and --verbose contradict"),
        (["x", "--chat", "--raw"], "--chat and --raw contradict"),
        (["x", "--device", "tpu"], "--device must be one of auto"),
        (["x", "--preset", "no-such"], "no-such"),
        ([""], "The prompt is empty."),
        ([], 'There is no prompt: give one as an argument (minigen sweep "...")'),
    ],
)  # fmt: skip
def test_wrong_usage_is_said_before_a_model_is_loaded(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """RNG-4"""
    assert main(["sweep", "-m", "no/such-model", "--offline", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_a_grid_that_is_too_large_is_refused_with_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ",".join(map(str, range(1, 18)))
    assert main(["sweep", "x", "-m", "no/such", "--top-k", numbers, "--min-new-tokens", numbers]) == 2
    assert capsys.readouterr().err == (
        "minigen: The lists make 17 of --top-k × 17 of --min-new-tokens: 289 combinations, and at most 256 are "
        "allowed: give shorter lists.\n"
    )
    assert main(["sweep", "x", "-m", "no/such", "--top-k", numbers, "--seeds", "300"]) == 2
    assert capsys.readouterr().err == (
        "minigen: 17 combinations with 300 seeds make 5,100 texts, and at most 4,096 are allowed: "
        "give shorter lists or fewer seeds.\n"
    )


def test_a_token_id_that_the_model_lacks_is_usage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(folder, "-t", "0.5,1", "--logit-bias", "258=1") == 2
    assert "--logit-bias must be token ids from 0 to 257, not 258." in capsys.readouterr().err


def test_nothing_is_written_over_a_file_when_nothing_came(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("old")
    assert sweep(folder, "--truncate", "head", "--logit-bias", "999=1", "-o", str(kept)) == 2
    assert (kept.read_text(), list(tmp_path.iterdir())) == ("old", [kept])


def test_texts_that_fail_are_told_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """BAT-4, SMP-19"""
    from transformers import AutoModelForCausalLM

    path = tiny_folder(tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        model.lm_head.weight[5] = math.nan
    model.save_pretrained(path)
    assert sweep(path, "-t", "0.5,1", "--seed", "3", "-n", "2", "--jsonl") == 1
    out, err = capsys.readouterr()
    texts, combinations = records(out)
    assert [one["finish_reason"] for one in texts] == ["error"] * 4
    assert all("non-finite logits at token 1" in one["error"] for one in texts)
    assert [one["logprob_per_token"] for one in combinations] == [None, None]
    assert [line for line in err.splitlines() if "non-finite" in line] == [
        "minigen: seed 3 of combination 1 · temperature 0.5, and 3 more: The model gave non-finite logits at token 1; "
        "try --dtype bfloat16 or --dtype float32."
    ]


# --- streams


def test_help_needs_no_library_and_shows_examples() -> None:
    """MOD-14"""
    code = (
        "import sys\nfrom minigen.cli.app import main\n"
        "assert main(['sweep', '-h']) == 0\n"
        "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Example: minigen sweep " in done.stdout


def test_a_closed_pipe_ends_quietly(folder: Path) -> None:
    """TTY-1"""
    assert with_closed_output("sweep", "ab", "-m", str(folder), "--raw", "-t", "0.5,1", "--jsonl", "-q") == (b"", 0)


def test_a_signal_keeps_what_is_there_and_sums_it_up(folder: Path) -> None:
    """TTY-4, U21"""
    grid = ["-t", "0.5,1,1.5", "--seeds", "300", "--max-new-tokens", "100", "--ignore-eos"]
    process = subprocess.Popen(
        [*COMMAND, "sweep", "ab", "-m", str(folder), "--raw", *grid, "--jsonl"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out += process.stdout.read()
    err = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(60) == 130
    assert err.endswith("minigen: interrupted; the texts so far are kept.\n")
    texts, combinations = records(out)
    assert len(combinations) == 3
    assert sum(one["num_texts"] for one in combinations) == len(texts) < 900
    assert {one["finish_reason"] for one in texts} <= {"length", "interrupted"}
    assert all(one["token_ids"] for one in texts), "a text that has not begun is none"


# --- the page


def test_the_page_lists_every_key_and_no_other() -> None:
    sections = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    for title, schema in {"A text": TEXT, "A combination": COMBINATION, "A parting": PARTING}.items():
        rows = re.findall(r"^\| (`[^|]+) \|", sections[title], re.MULTILINE)
        assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(schema["properties"]), title


def test_the_page_explains_the_columns_at_every_width(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    rows = re.findall(r"^\| (`[^|]+) \|", sections["The table"], re.MULTILINE)
    titles = {"top_k"}
    for columns in ("70", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        assert sweep(folder, "--top-k", "1,2", "--max-new-tokens", "2") == 0
        titles |= set(re.split(r"\s{2,}", capsys.readouterr().out.splitlines()[0].strip()))
    assert titles - {"top_k"} == {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_page_names_options_that_exist() -> None:
    command: Any = typer.main.get_command(app)
    known = {flag for name in ("run", "sweep", "replay") for flag in _flags(command, name)}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE.read_text("utf-8"))) <= known


@pytest.mark.real_model
def test_the_table_of_the_page_is_what_the_command_prints(
    default_model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"^```console\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    line, table = block.removeprefix("$ minigen ").split("\n", 1)
    assert main([*shlex.split(line), "--no-stdin", "--device", "cpu", "--dtype", "float32"]) == 0
    assert capsys.readouterr().out == table


def _flags(command: Any, name: str) -> set[str]:
    _, found, _ = command.resolve_command(typer.Context(command), [name])
    return {flag for parameter in found.params for flag in parameter.opts}
