"""`minigen batch` as a user meets it: records, settings, failures, streams, exit codes."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from minigen.cli.app import main
from minigen.cli.batch_options import size
from minigen.cli.batch_output import RecordFile
from minigen.cli.batch_schema import BATCH_SCHEMA
from minigen.generation.errors import ParameterError
from minigen.generation.params import next_seed
from processes import COMMAND, with_closed_output
from stubs import byte_tokenizer, scripted_folder
from tiny_folders import tiny_folder, without_template

LINES: list[dict[str, Any]] = [
    {"prompt": "Hello", "max_new_tokens": 9},
    {"prompt": "Hello, you", "max_new_tokens": 3, "temperature": 0},
    {"prompt": "é🤖 [/INST]", "max_new_tokens": 12, "seed": 5},
    {"prompt": "Hello", "max_new_tokens": 1, "top_k": 4, "id": "one"},
    {"prompt": "x" * 60, "max_new_tokens": 20, "id": 7, "repetition_penalty": 1.5},
    {"prompt": "Hello", "max_new_tokens": 9, "order": "vllm", "top_p": 0.7},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"))


pytestmark = pytest.mark.usefixtures("no_stdin", "in_folder")


def lines_of(*lines: dict[str, Any] | str | bytes) -> bytes:
    """JSON lines, and others as they are."""
    raw = (json.dumps(line) if isinstance(line, dict) else line for line in lines)
    return b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in raw)


def batch(folder: Path, *arguments: str, given: Sequence[dict[str, Any] | str | bytes] = LINES) -> int:
    Path("in.jsonl").write_bytes(lines_of(*given))
    return main(["batch", "in.jsonl", "-m", str(folder), "--device", "cpu", *arguments])


def records(text: str) -> list[dict[str, Any]]:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    found: list[dict[str, Any]] = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    for record in found:
        Draft202012Validator(BATCH_SCHEMA).validate(record)
    return found


def by_line(text: str) -> dict[int, dict[str, Any]]:
    found = {record["line"]: record for record in records(text)}
    assert len(found) == len(text.splitlines())
    return found


# --- the same text as alone


def test_each_text_is_the_one_that_its_line_gives_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RNG-1, TOK-5"""
    assert batch(folder, "--raw", "--seed", "40") == 0
    found = by_line(capsys.readouterr().out)
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    for number, line in enumerate(LINES, start=1):
        flags = [
            part for name, value in line.items() if name not in ("prompt", "id")
            for part in (f"--{name.replace('_', '-')}", str(value))
        ]  # fmt: skip
        flags += [] if "seed" in line else ["--seed", str(39 + number)]
        command = ["run", "--raw", "--json", "-m", str(folder), "--device", "cpu", *flags, "--", line["prompt"]]
        assert main(command) == 0
        alone = json.loads(capsys.readouterr().out)
        for name in ("text", "finish_reason", "stop", "seed", "usage"):
            assert found[number][name] == alone[name], (number, name)
        assert found[number]["id"] == line.get("id")


@pytest.mark.parametrize("flags", [["--max-running", "1"], ["--max-running", "3"], ["--kv-memory", "128kB"]])
def test_company_and_memory_change_no_record(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    """RNG-1, BAT-6"""
    assert batch(folder, "--seed", "40") == 0
    expected = by_line(capsys.readouterr().out)
    assert batch(folder, "--seed", "40", *flags) == 0
    assert by_line(capsys.readouterr().out) == expected


def test_records_come_as_they_finish_or_in_the_order_of_the_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [{"prompt": "a", "max_new_tokens": 20}, {"prompt": ""}, {"prompt": "b", "max_new_tokens": 2}]
    flags = ["--ignore-eos", "--seed", "1"]
    assert batch(folder, *flags, given=given) == 1
    finished = records(capsys.readouterr().out)
    assert [record["line"] for record in finished] == [2, 3, 1]
    assert batch(folder, *flags, "--ordered", given=given) == 1
    ordered = records(capsys.readouterr().out)
    assert [record["line"] for record in ordered] == [1, 2, 3]
    assert sorted(finished, key=lambda record: record["line"]) == ordered


# --- settings


def test_a_line_beats_a_flag_and_a_flag_the_preset(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SMP-6"""
    Path("mine.yaml").write_text(
        f"model: {{source: {folder}, device: cpu}}\nsampling: {{max_new_tokens: 6, ignore_eos: true, temperature: 0}}\n"
    )
    Path("in.jsonl").write_bytes(lines_of({"prompt": "a"}, {"prompt": "a", "max_new_tokens": 2}))
    for flags, counts in (([], [6, 2]), (["--max-new-tokens", "4"], [4, 2])):
        assert main(["batch", "in.jsonl", "--preset", "./mine.yaml", "--ordered", *flags]) == 0
        found = records(capsys.readouterr().out)
        assert [record["usage"]["completion_tokens"] for record in found] == counts
        run = {"ignore_eos": True, "temperature": 0, "max_new_tokens": counts[0]}
        assert {name: found[0]["run"][name] for name in run} == run


def test_each_line_has_a_seed_of_its_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given: list[dict[str, Any] | str] = [{"prompt": "a"}, "", {"prompt": "a", "seed": 0}, {"prompt": "a"}]
    flags = ["--ordered", "--max-new-tokens", "2"]
    last = 2**63 - 1
    for seed, seeds in ((7, [7, 0, 10]), (last, [last, 0, 2])):
        assert batch(folder, *flags, "--seed", str(seed), given=given) == 0
        found = records(capsys.readouterr().out)
        assert [record["seed"] for record in found] == seeds
        assert {record["run"]["seed"] for record in found} == {seed}
    assert batch(folder, *flags, given=given) == 0
    found = records(capsys.readouterr().out)
    first = found[0]["run"]["seed"]
    assert [record["seed"] for record in found] == [first, 0, next_seed(first, 3)]


def ids_of_turn(*turns: str) -> int:
    """The number of tokens that the template of the tests makes of turns."""
    return sum(len(turn) + 2 for turn in turns) + len("assistant: ") + 1


def test_the_system_text_is_the_line_s_then_the_flag_s_then_the_preset_s(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.yaml").write_text(
        f'model: {{source: {folder}, device: cpu}}\nprompt: {{system: preset, template: "<{{input}}>"}}\n'
    )
    talk = [{"role": "user", "content": "b"}]
    given = [
        {"prompt": "a"},
        {"prompt": "a", "system": "of the line"},
        {"prompt": "a", "system": ""},
        {"messages": talk},
        {"messages": talk, "system": "of the line"},
        {"messages": [{"role": "system", "content": "its own"}, *talk]},
    ]
    Path("in.jsonl").write_bytes(lines_of(*given))
    for flags, shared in (([], "preset"), (["--system", "of a flag"], "of a flag")):
        command = ["batch", "in.jsonl", "--preset", "./mine.yaml", "--ordered", "--max-new-tokens", "1", *flags]
        assert main(command) == 0
        found = [record["usage"]["prompt_tokens"] for record in records(capsys.readouterr().out)]
        assert found == [
            ids_of_turn(f"system: {shared}", "user: <a>"),
            ids_of_turn("system: of the line", "user: <a>"),
            ids_of_turn("system: ", "user: <a>"),
            ids_of_turn(f"system: {shared}", "user: b"),
            ids_of_turn("system: of the line", "user: b"),
            ids_of_turn("system: its own", "user: b"),
        ]


def test_raw_text_has_no_place_for_messages_or_a_system_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [{"messages": [{"role": "user", "content": "b"}]}, {"prompt": "a", "system": "s"}, {"prompt": "a"}]
    assert batch(folder, "--raw", "--ordered", "--max-new-tokens", "1", given=given) == 1
    found = records(capsys.readouterr().out)
    assert [record.get("error") for record in found] == [
        f"messages need a chat template, and {folder.name} is used without one.",
        f"system needs a chat template, and {folder.name} is used without one.",
        None,
    ]
    assert batch(folder, "--raw", "--system", "s", given=given) == 2
    assert "contradict" in capsys.readouterr().err


def test_a_chat_template_may_come_with_the_command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = without_template(tiny_folder(tmp_path / "bare"))
    given = [{"messages": [{"role": "user", "content": "b"}]}]
    assert batch(bare, given=given) == 1
    assert "messages need a chat template" in records(capsys.readouterr().out)[0]["error"]
    Path("own.jinja").write_text("{{ messages[0]['content'] }}!")
    assert batch(bare, "--chat-template", "own.jinja", "--max-new-tokens", "1", given=given) == 0
    (record,) = records(capsys.readouterr().out)
    assert record["usage"]["prompt_tokens"] == 2
    assert re.fullmatch("{{.*}}!|sha256:.*", record["run"]["chat_template"])


def test_text_in_a_line_cannot_forge_a_turn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TOK-6"""
    given = [{"prompt": "<|end|>"}, {"messages": [{"role": "user", "content": "<|end|>"}]}]
    assert batch(folder, "--max-new-tokens", "1", given=given) == 0
    for record in records(capsys.readouterr().out):
        assert record["usage"]["prompt_tokens"] == ids_of_turn("user: <|end|>")


# --- failures


def test_a_bad_line_becomes_a_record_and_the_rest_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """BAT-4, INP-1, INP-3"""
    given: list[dict[str, Any] | str | bytes] = [
        b'\xef\xbb\xbf{"prompt": "a"}\r',
        "{",
        b'{"prompt": "caf\xe9", "id": 1}',
        {"prompt": "a", "id": "two", "promt": "b"},
        {"prompt": "a", "id": 3, "temperature": -1},
        {"prompt": "", "id": 4},
        {"prompt": "x" * 500, "id": 5},
        {"prompt": "x" * 5000, "id": 6},
        {"prompt": "a", "logit_bias": {"300": 1}, "id": 7},
        {"prompt": "a", "logit_bias": {str(i): None for i in range(258)}, "id": 8},
        {"prompt": "a", "id": 9},
    ]
    assert batch(folder, "--raw", "--max-new-tokens", "2", "--ordered", given=given) == 1
    captured = capsys.readouterr()
    found = records(captured.out)
    assert [record["id"] for record in found] == [None, None, None, "two", *range(3, 10)]
    assert [record.get("error", "")[:52] for record in found] == [
        "",
        "The line is no JSON: Expecting property name enclose",
        "The line must be UTF-8, and it has the byte 0xe9 at ",
        "promt is not known; did you mean prompt?",
        "temperature must be between 0 and 100, not -1.",
        "The prompt is empty.",
        "The prompt has 500 tokens, but the model's window of",
        "The prompt has 5000 bytes, but the model's window of",
        "logit_bias must be token ids from 0 to 257, not 300.",
        found[9]["error"][:52],
        "",
    ]
    refused = [record for record in found if record["seed"] is None]
    assert [record["line"] for record in refused] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert {record["finish_reason"] for record in found if "error" in record} == {"error"}
    assert captured.err == (f"minigen: 9 of 11 requests failed, the first in line 2: {found[1]['error']}\n")


def test_one_request_that_fails_in_the_middle_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """BAT-4: the model gives no numbers from the tenth token on."""
    from transformers import GPT2LMHeadModel

    path = scripted_folder(tmp_path / "broken", list(b"abcdefghijkl"), prompt_length=3, tokenizer=byte_tokenizer())
    model: Any = GPT2LMHeadModel.from_pretrained(path)
    with torch.no_grad():
        model.transformer.wpe.weight[9:] = torch.nan
    model.save_pretrained(path)
    capsys.readouterr()
    given = [{"prompt": "xyz", "max_new_tokens": 20 if n == 1 else 4} for n in range(4)]
    assert batch(path, "--raw", "-t", "0", "--ordered", given=given) == 1
    found = records(capsys.readouterr().out)
    assert [record["text"] for record in found] == ["abcd", "abcdefg", "abcd", "abcd"]
    assert [record["finish_reason"] for record in found] == ["length", "error", "length", "length"]
    assert "non-finite logits" in found[1]["error"]
    assert found[1]["usage"]["completion_tokens"] == 7
    assert found[1]["seed"] is not None


def test_truncate_cuts_the_prompt_or_the_last_message_and_the_record_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = [{"role": "user", "content": "first"}, {"role": "user", "content": "y" * 300}]
    given = [{"prompt": "x" * 300}, {"messages": talk}, {"prompt": "z" * 9000}, {"prompt": "fits"}]
    assert batch(folder, "--truncate", "head", "--ordered", "--max-new-tokens", "2", given=given) == 0
    captured = capsys.readouterr()
    found = records(captured.out)
    room = 128 - 2
    kept = [room - ids_of_turn("user: "), room - ids_of_turn("user: first", "user: ")]
    assert [record.get("truncated") for record in found[:2]] == [
        {"kept": kept[0], "dropped": 300 - kept[0]}, {"kept": kept[1], "dropped": 300 - kept[1]},
    ]  # fmt: skip
    assert found[2]["truncated"]["kept"] == kept[0]
    assert "truncated" not in found[3]
    assert [record["usage"]["prompt_tokens"] for record in found[:3]] == [room] * 3
    assert captured.err == "minigen: warning: 3 prompts were cut to fit the window.\n"


def test_lines_of_text_are_prompts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given: list[dict[str, Any] | str | bytes] = ["a", "", '{"prompt": "b"}', " ", b"\xff"]
    assert batch(folder, "--lines", "--raw", "--ordered", "--max-new-tokens", "1", given=given) == 1
    captured = capsys.readouterr()
    found = records(captured.out)
    assert [(record["line"], record["usage"]["prompt_tokens"]) for record in found] == [(1, 1), (3, 15), (4, 1), (5, 0)]
    assert found[0]["run"]["lines"] is True
    assert captured.err.splitlines()[0] == "minigen: 1 empty line was left out."


def test_an_input_without_requests_is_done_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert batch(folder, "-o", "out", given=[]) == 0
    assert (capsys.readouterr(), Path("out").read_bytes()) == (("", ""), b"")


# --- the output


def test_an_output_that_holds_something_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").write_text("precious")
    assert batch(folder, "-o", "out") == 2
    assert capsys.readouterr().err == (
        "minigen: --output 'out' holds something already: --resume continues it, --overwrite begins anew.\n"
    )
    assert Path("out").read_text() == "precious"
    assert batch(folder, "-o", "out", "--overwrite", "--temperature", "-1") == 2
    assert batch(Path("no-such-folder").absolute(), "-o", "out", "--overwrite") == 2
    assert Path("out").read_text() == "precious", "the output changes when the first record can come"
    capsys.readouterr()
    assert batch(folder, "-o", "out", "--overwrite") == 0
    assert sorted(by_line(Path("out").read_text())) == [1, 2, 3, 4, 5, 6]
    assert capsys.readouterr() == ("", "")


def test_an_output_is_made_where_there_is_none_and_gone_where_nothing_came_of_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert batch(Path("no-such-folder").absolute(), "-o", "out") == 2
    assert not Path("out").exists()
    Path("out").touch(mode=0o640)
    Path("link").symlink_to("out")
    assert batch(folder, "-o", "link") == 0
    assert Path("link").is_symlink()
    assert Path("out").stat().st_mode & 0o777 == 0o640
    assert len(records(Path("out").read_text())) == 6
    assert batch(folder, "-o", "nowhere/out") == 2
    assert "--output 'nowhere/out' cannot be written: No such file" in capsys.readouterr().err
    assert batch(folder, "-o", ".") == 2
    assert "cannot be written: Is a directory." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["-o", "in.jsonl", "--overwrite"], "--output 'in.jsonl' is the input itself: give another file."),
        (["-o", "out", "--overwrite", "--resume"], "--resume and --overwrite contradict each other: give one of them."),
        (["--resume"], "--resume needs --output with a file, which it continues."),
        (["-q", "-v"], "--quiet and --verbose contradict each other: give one of them."),
        (["--chat", "--raw"], "--chat and --raw contradict each other: give one of them."),
        (["--max-running", "0"], "--max-running must be a whole number between 1 and 4096, not 0."),
        (["--kv-memory", "12"], None),
        (["--temperature", "nan"], "--temperature must be a number between 0 and 100, not nan."),
    ],
)
def test_what_cannot_be_meant_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], sentence: str | None
) -> None:
    assert batch(folder, *flags) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    if sentence is None:
        assert captured.err.startswith("minigen: --kv-memory must be at least ")
    else:
        assert captured.err == f"minigen: {sentence}\n"
    assert json.loads(Path("in.jsonl").read_text().splitlines()[0]) == LINES[0]


def test_a_second_writer_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RecordFile(Path("out"), does_resume=False, does_overwrite=False):
        assert batch(folder, "-o", "out", "--resume") == 2
        assert capsys.readouterr().err == (
            "minigen: --output 'out' is being written by another process: wait for it, or give another file.\n"
        )
    assert batch(folder, "-o", "out") == 0


def test_a_full_disk_ends_the_batch_with_whole_records(folder: Path) -> None:
    Path("in.jsonl").write_bytes(lines_of(*[{"prompt": "a", "max_new_tokens": 3}] * 20))
    words = [*COMMAND, "batch", "in.jsonl", "-m", str(folder), "--device", "cpu", "-o", "out", "--seed", "1"]
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    limited = f"import os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", limited, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "minigen: --output 'out' could not be written: File too large.\n")
    kept = Path("out").read_text()
    assert kept.endswith("\n")
    assert 2 < len(records(kept)) < 20
    assert main([*words[3:], "--resume"]) == 0
    assert Path("out").read_text().startswith(kept)
    assert sorted(by_line(Path("out").read_text())) == list(range(1, 21))


def test_a_device_takes_records_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert batch(folder, "-o", "/dev/null") == 0
    assert batch(folder, "-o", "/dev/null", "--resume") == 2
    assert "--resume needs --output with a file" in capsys.readouterr().err
    assert batch(folder, "-o", "-") == 0
    assert len(records(capsys.readouterr().out)) == 6


# --- streams


def test_standard_input_is_read_and_standard_error_is_silent(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines_of(*LINES))))
    assert main(["batch", "-", "-m", str(folder), "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert (sorted(by_line(captured.out)), captured.err) == ([1, 2, 3, 4, 5, 6], "")
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["batch", "-", "-m", str(folder)]) == 2
    assert capsys.readouterr().err == "minigen: Standard input is closed: give the requests as a file.\n"


def test_verbose_tells_settings_and_sums_up_and_quiet_keeps_failures(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [{"prompt": "a", "max_new_tokens": 2}, {"prompt": ""}]
    assert batch(folder, "-v", "--seed", "3", "--ignore-eos", given=given) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].split() == ["model", folder.name]
    assert ["seed", "3", "flag", "--seed"] in [line.split() for line in lines]
    assert re.fullmatch(r"2 of 2 requests, 1 failed, 2 tokens, [\d.]+ tokens/s, peak \d.*B, seed 3", lines[-2])
    failed = "minigen: 1 of 2 requests failed, the first in line 2: The prompt is empty."
    assert lines[-1] == failed
    assert batch(folder, "-q", given=given) == 1
    assert capsys.readouterr().err == f"{failed}\n"


def test_a_model_that_runs_one_at_a_time_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import BloomConfig, BloomForCausalLM

    path = tmp_path / "lonely"
    config = BloomConfig(vocab_size=258, hidden_size=16, n_layer=1, n_head=2, bos_token_id=256, eos_token_id=257)
    BloomForCausalLM(config).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    capsys.readouterr()
    assert batch(path, "--seed", "1") == 0
    captured = capsys.readouterr()
    assert captured.err.count("one request at a time") == 1
    assert batch(path, "--seed", "1", "--max-running", "1") == 0
    alone = capsys.readouterr()
    assert (by_line(alone.out), alone.err) == (by_line(captured.out), "")


def test_a_pipe_is_answered_as_it_comes_and_a_wait_is_said(folder: Path) -> None:
    """INP-9, TTY-18: the next line is sent when the record of the one before has come."""
    process = subprocess.Popen(
        [*COMMAND, "batch", "-", "--lines", "-m", str(folder), "--device", "cpu", "--max-new-tokens", "3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    for number in (1, 2):
        process.stdin.write(f"line {number}\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["line"] == number
    assert process.stderr.readline() == "minigen: waiting for standard input.\n"
    process.stdin.write("the last")
    process.stdin.close()
    assert json.loads(process.stdout.readline())["line"] == 3
    assert (process.stdout.read(), process.stderr.read(), process.wait(60)) == ("", "", 0)
    process.stdout.close()
    process.stderr.close()


def test_a_closed_pipe_ends_quietly(folder: Path) -> None:
    """TTY-1"""
    Path("in.jsonl").write_bytes(lines_of(*LINES))
    assert with_closed_output("batch", "in.jsonl", "-m", str(folder), "--device", "cpu") == (b"", 0)


# --- sizes


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1000000", 10**6), ("512MB", 512 * 10**6), ("2GiB", 2 * 2**30), ("1.5 kib", 1536), ("7B", 7), ("3kB", 3000),
        ("1TB", 10**12), (" 2 gb ", 2 * 10**9),
    ],
)  # fmt: skip
def test_a_size_is_a_number_with_a_unit(text: str, num_bytes: int) -> None:
    assert size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "0", "-1", "1e3", "MB", "5M", "5 parsecs", "0.1", "inf", "nan", "１MB", "9" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match=r"--kv-memory must be a size such as 512MB, 2GiB or 1000000 \(bytes\)"):
        size(text)
