"""The command itself: exit codes, streams, files, pipes and signals."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from minigen.cli.app import main
from minigen.cli.destination import Destination
from minigen.cli.document_schema import JSON_SCHEMA
from minigen.generation.errors import RunError, SourceError
from processes import COMMAND, with_closed_output
from stubs import CHAT_TEMPLATE, byte_tokenizer, scripted_folder

TEXT = "Hello [/INST] arr[i] 中\n\x1b[2J " + "x" * 90  # printed as it is in a pipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that writes TEXT after a prompt of two tokens."""
    script = [*TEXT.encode(), 257]
    path = tmp_path_factory.mktemp("model")
    return str(scripted_folder(path, script, prompt_length=2, tokenizer=byte_tokenizer()))


pytestmark = pytest.mark.usefixtures("no_stdin")


def run_process(*arguments: str, stdin: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, **environ},
        timeout=120,
        check=False,
    )


def run_raw(folder: str, *arguments: str) -> int:
    return main(["run", "ab", "--raw", "-m", folder, *arguments])


def test_a_pipe_gets_exact_bytes_and_stderr_is_silent(folder: str) -> None:
    """TTY-7, TTY-8, MKP-1, SEC-1, INP-10"""
    done = run_process("run", "--raw", "-m", folder, "-t", "0", "--", "-5", COLUMNS="20", FORCE_COLOR="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, TEXT.encode(), b"")


def test_a_narrow_encoding_replaces_what_it_lacks(folder: str) -> None:
    """TTY-16"""
    done = run_process("run", "ab", "--raw", "-m", folder, "-t", "0", PYTHONIOENCODING="cp1252")
    assert (done.returncode, done.stdout, done.stderr) == (0, TEXT.replace("中", "?").encode("cp1252"), b"")


def test_a_closed_pipe_ends_quietly(folder: str) -> None:
    """TTY-1, U22"""
    assert with_closed_output("run", "ab", "--raw", "-m", folder, "-t", "0") == (b"", 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_stdin_is_waited_for_ends_at_once(number: signal.Signals, code: int) -> None:
    """U21"""
    process = subprocess.Popen(
        [*COMMAND, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "minigen: waiting for standard input to end; --no-stdin would leave it alone.\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert err == ("minigen: interrupted.\n" if code == 130 else "minigen: terminated.\n")


def test_a_signal_in_a_stream_leaves_valid_lines(folder: str) -> None:
    """TTY-4"""
    process = subprocess.Popen(
        [*COMMAND, "run", "ab", "--raw", "-m", folder, "--jsonl", "-n", "1000"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    process.send_signal(signal.SIGINT)
    lines += process.stdout.read().splitlines()
    process.stdout.close()
    assert process.wait(60) == 130
    last = json.loads(lines[-1])
    assert (last["event"], last["finish_reason"]) == ("done", "interrupted")
    assert all(json.loads(line) for line in lines)


@pytest.mark.parametrize(("arguments", "code"), [(["-v"], 0), (["-t", "999"], 2)])
def test_messages_that_nobody_takes_change_nothing(folder: str, arguments: list[str], code: int) -> None:
    """Standard error is full, then closed."""
    text = TEXT.encode() if code == 0 else b""
    command = [*COMMAND, "run", "ab", "--raw", "-m", folder, "--top-k", "1", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=full, timeout=120, check=False
        )
    assert (done.returncode, done.stdout) == (code, text)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stdout) == (code, text)


def test_a_closed_standard_output_is_said() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "presets", "list", "--json"], stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (2, b"minigen: Standard output is closed.\n")


@pytest.mark.parametrize("error", [RuntimeError("broken import"), SourceError("It cannot be used.")])
def test_a_signal_that_a_library_turns_into_a_failure_is_still_a_signal(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """U21"""

    def interrupted(*arguments: Any, **settings: Any) -> Any:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:  # noqa: BLE001 -- as some libraries do
            raise error from None

    monkeypatch.setattr("minigen.presets.load", interrupted)
    assert main(["run", "x"]) == 130
    assert capsys.readouterr().err == "minigen: interrupted.\n"


def test_an_ignored_signal_stays_ignored(folder: str) -> None:
    """nohup and a script's & start a program like this."""
    script = 'trap "" INT; exec "$@"'
    command = ["sh", "-c", script, "sh", *COMMAND, "run", "ab", "--raw", "-m", folder, "--jsonl", "-t", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        last = process.stdout.read().splitlines()[-1]
    assert (process.returncode, json.loads(last)["finish_reason"]) == (0, "stop")


def test_a_current_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(gone), *COMMAND, "run", "x"], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == b"minigen: The current folder is gone: change to another one first.\n"


def test_json_stands_alone_on_stdout(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """U1, STA-7"""
    assert run_raw(folder, "--json", "--inspect", "--top", "3", "--top-k", "1", "--seed", "5", "-n", "2", "-v") == 0
    out, err = capsys.readouterr()
    documents = [json.loads(line) for line in out.splitlines()]
    for document in documents:
        Draft202012Validator(JSON_SCHEMA).validate(document)
        assert (document["text"], document["finish_reason"], document["stop"]) == (TEXT, "stop", 257)
        assert "".join(token["text"] for token in document["tokens"]) == TEXT
        assert document["tokens"][-1]["token"] == "<|end|>"
        assert document["usage"]["completion_tokens"] == len(TEXT.encode()) + 1
    assert [document["seed"] for document in documents] == [5, 6]
    assert documents[0]["settings"]["top_k"] == {"value": 1, "origin": "flag --top-k"}
    assert documents[0]["settings"]["mode"] == {"value": "raw", "origin": "flag --raw"}
    assert documents[0]["settings"]["device"]["value"] == "cpu"
    assert "top_k" in err
    assert "flag --top-k" in err
    assert "rank" not in err  # no tables


def test_stdout_is_the_same_whatever_is_said_beside_it(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """U1"""
    texts = []
    for flag in ("-v", "-q", "--inspect"):
        assert run_raw(folder, "-t", "0", flag) == 0
        out, err = capsys.readouterr()
        texts.append(out)
        assert bool(err) is (flag != "-q")
        assert "\x1b" not in err
    assert texts == [TEXT] * 3


def test_verbose_tells_of_the_step_and_its_weights(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raw(folder, "-t", "0", "-v") == 0
    rows = [line.split(maxsplit=2) for line in capsys.readouterr().err.splitlines()]
    assert rows[2] == ["step", "not", "compiled"]
    assert ["weights", "exact", "built-in"] in rows


def test_weights_that_no_compiled_step_has_are_not_said_to_be_used(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_raw(folder, "-t", "0", "--weights", "int8", "--json") == 0
    out, err = capsys.readouterr()
    origin = "no compiled step with int8 weights is in use"
    assert json.loads(out)["settings"]["weights"] == {"value": "exact", "origin": origin}
    assert f"minigen models compile {folder} --weights int8" in err
    assert run_raw(folder, "-t", "0", "--weights", "int8", "--compile", "require") == 1


def test_a_command_that_decodes_nothing_leaves_weights_of_a_preset_aside(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = tmp_path / "p.yaml"
    preset.write_text(f"model: {{source: {folder}, device: cpu, weights: int8}}")
    for command in (["tokens", "ab"], ["score", "ab"]):
        assert main([*command, "--no-stdin", "-p", str(preset)]) == 0
        assert capsys.readouterr().err == ""


def test_a_file_takes_the_text(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    target.chmod(0o600)
    assert run_raw(folder, "-t", "0", "-o", str(target)) == 0
    assert target.read_bytes() == TEXT.encode()
    assert target.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_full_disk_leaves_the_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    destination = Destination(target)
    destination.keep()
    with open("/dev/full", "w") as full:
        os.dup2(full.fileno(), destination.stream.fileno())
    destination.stream.write("new")
    with pytest.raises(RunError, match=r"--output .* could not be written: No space left"):
        destination.__exit__(None, None, None)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("flags", [[], ["--jsonl"]])
def test_a_disk_that_fills_up_while_it_is_written_is_named(folder: str, tmp_path: Path, flags: list[str]) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    flags = [*flags, "--ignore-eos", "--max-new-tokens", "100", "-n", "40", "--no-stdin"]
    script = 'ulimit -f 1; trap "" XFSZ; exec "$@"'
    command = ["sh", "-c", script, "sh", *COMMAND, "run", "ab", "--raw", "-m", folder, "-o", str(target), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"minigen: --output '{target}' could not be written: File too large.\n")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_file_may_have_the_longest_name(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    with Destination(target) as destination:
        destination.keep()
    assert target.exists()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/{}"])
def test_an_open_file_is_written_where_it_stands(
    name: str, folder: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A shell's `>(command)` is such a name, and `-o /dev/stdout >> log` keeps the log."""
    target = tmp_path / "log"
    target.write_text("before\n")
    with target.open("a") as log:
        arguments = ["run", "ab", "--raw", "-m", folder, "-t", "0", "-o", name.format(log.fileno())]
        done = subprocess.run(
            [*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=log, pass_fds=[log.fileno()], check=False
        )
    assert (done.returncode, target.read_text()) == (0, f"before\n{TEXT}")


def test_a_pipe_by_its_number_is_written(folder: str) -> None:
    reading, writing = os.pipe()
    arguments = ["run", "ab", "--raw", "-m", folder, "-t", "0", "-o", f"/dev/fd/{writing}"]
    done = subprocess.run([*COMMAND, *arguments], stdin=subprocess.DEVNULL, pass_fds=[writing], check=False)
    os.close(writing)
    with open(reading, "rb") as came:
        assert (done.returncode, came.read()) == (0, TEXT.encode())


def test_a_failed_run_leaves_the_file_alone(folder: str, tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    assert main(["run", "x", "-m", str(tmp_path), "-o", str(target)]) == 2
    assert run_raw(folder, "--logit-bias", "9999=1", "-o", str(target)) == 2
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_system_text_needs_a_template(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "ab", "-m", folder, "--system", "Be brief."]) == 2
    assert "--system needs a chat template" in capsys.readouterr().err
    assert main(["run", "ab", "-m", folder, "--chat"]) == 2
    assert "has no chat template" in capsys.readouterr().err


def test_chat_uses_the_given_template(tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(CHAT_TEMPLATE)
    flags = ["--chat-template", str(template), "--system", "S", "--json", "--max-new-tokens", "1"]
    assert main(["run", "u", "-m", folder, *flags]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["mode"]["value"] == "chat"
    # bos, "system: S", end, newline, "user: u", end, newline, "assistant: "
    assert document["usage"]["prompt_tokens"] == 1 + 9 + 1 + 1 + 7 + 1 + 1 + 11


@pytest.mark.parametrize(("side", "place"), [("head", "beginning"), ("tail", "end")])
def test_a_cut_is_announced(folder: str, side: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """CTX-2"""
    flags = ["--raw", "-m", folder, "-q", "--max-new-tokens", "6"]
    assert main(["run", "a" * 300, *flags]) == 2
    assert "300" in capsys.readouterr().err
    assert main(["run", "a" * 300, *flags, "--truncate", side]) == 0
    assert capsys.readouterr().err == (
        "minigen: warning: the prompt is too long for the window of 256 tokens: "
        f"50 tokens at its {place} were dropped, 250 kept.\n"
    )


def test_a_preset_s_template_is_neither_the_user_s_text_nor_cut(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTX-2"""
    preset = tmp_path / "mine.yaml"
    preset.write_text('prompt: {mode: raw, template: "Summarise: {input} ."}')
    flags = ["-p", str(preset), "-m", folder, "--max-new-tokens", "6", "--no-stdin"]
    assert main(["run", "ask", *flags, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["prompt"] == "ask"
    assert record["usage"]["prompt_tokens"] == len("Summarise: ask .")
    assert main(["run", "a" * 300, *flags, "--truncate", "head", "-q"]) == 0
    assert f"{250 - len('Summarise:  .')} kept" in capsys.readouterr().err


def test_a_token_id_past_the_vocabulary_is_refused_before_the_load(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("sampling:\n  end_token_ids: [5, 999999]\n")
    monkeypatch.setattr("minigen.generation.model.load_model", None)  # would fail otherwise
    assert main(["run", "x", "-m", folder, "--logit-bias", "999999=1", "--no-stdin"]) == 2
    error = capsys.readouterr().err
    assert re.search(r"--logit-bias must be token ids from 0 to \d+, not 999999\.", error)
    assert main(["run", "x", "-m", folder, "-p", str(preset), "--no-stdin"]) == 2
    assert f"{preset}:2: sampling.end_token_ids must be token ids" in capsys.readouterr().err


def test_a_template_with_a_syntax_error_is_refused_before_the_load(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minigen.generation.model.load_model", None)  # would fail otherwise
    template = tmp_path / "bad.jinja"
    template.write_text("{% for m in messages %}\n{{ m.content }}")
    assert main(["run", "x", "-m", folder, "--chat-template", str(template), "--no-stdin"]) == 2
    template.write_text("{% generation %}x{% endgeneration %}")  # a tag of the library's own
    assert main(["run", "x", "--chat-template", str(template), "-m", "./no-such-folder", "--no-stdin"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "--chat-template is not a valid template" in first
    assert "no-such-folder" in second


USAGE: list[tuple[list[str], str]] = [
    (
        ["run", "-5 + 3 ="],
        'No such option: -5. A prompt that starts with a dash goes after --: minigen run -- "-5 ...".',
    ),
    (["run", "- hi"], 'No such option: -. A prompt that starts with a dash goes after --: minigen run -- "- ...".'),
    (["run", "x", "-q=4"], "No such option: -=. See minigen run --help."),
    (["presets", "export", "x", "-q"], "No such option: -q. See minigen presets export --help."),
    (["report", "x", "-5"], "No such option: -5. See minigen report --help."),
    (["run", "x", "--temprature", "1"], "No such option: --temprature (Possible options: --"),
    (["run", "x", "--max-tokens", "1"], "No such option: --max-tokens. Did you mean --max-new-tokens? See minigen run"),
    (["batch", "x", "--max-tokens", "1"], "No such option: --max-tokens. Did you mean --max-new-tokens? See minigen"),
    (["presets", "list", "--max-tokens", "1"], "No such option: --max-tokens. See minigen presets list --help."),
    (["run", "x", "--help", "--order"], "Option '--order' requires an argument. See minigen run --help."),
    (["presets", "export", "x", "--to"], "Option '--to' requires an argument. See minigen presets export --help."),
    (["run", "x", "-t", "-1"], "--temperature must be between 0 and 100, not -1."),
    (["run", "x", "-t", "2e2"], "--temperature must be between 0 and 100, not 2e2."),
    (["run", "x", "--top-p", " 0"], "--top-p must be above 0 and at most 1, not 0."),
    (["run", "x", "--top-p", "nan"], "--top-p must be a number, above 0 and at most 1, not nan."),
    (["run", "x", "--top-k", "2.5"], "--top-k must be a whole number, 0 or more, not '2.5'."),
    (["run", "x", "--seed", "18446744073709551616"], "--seed must be a whole number between 0 and 2^63-1, not 1844"),
    (["run", "x", "-n", "1025"], "--num-samples must be a whole number between 1 and 1024, not 1025."),
    (["run", "x", "--threads", "0"], "--threads must be a whole number between 1 and 4096, not 0."),
    (
        ["run", "x", "--logit-bias", "a=1"],
        "--logit-bias must be ID=B, a token id (minigen tokens TEXT shows it) and a number, such as 257=-5, not",
    ),
    (["run", "x", "--stop", ""], "--stop must be at most 64 strings, none of them empty"),
    (["run", "x", "--device", "tpu"], "--device must be one of auto, cuda"),
    (["run", "x", "--dtype", "bfloat32"], "--dtype must be one of auto, float32, float16, bfloat16, not"),
    (["run", "x", "--weights", "int4"], "Invalid value for '--weights': 'int4' is not one of 'exact', 'int8'."),
    (["run", "x", "--weights", "int8", "--compile", "never"], "--compile must be auto or require with weights"),
    (["batch", "x", "--weights", "int8", "--compile", "never"], "--compile must be auto or require with weights"),
    (["sweep", "x", "--weights", "int8", "--compile", "never"], "--compile must be auto or require with weights"),
    (["run", "x", "--json", "--jsonl"], "--json and --jsonl contradict each other: give one of them."),
    (["run", "x", "-q", "-v"], "--quiet and --verbose contradict each other"),
    (["run", "x", "--chat", "--raw"], "--chat and --raw contradict each other"),
    (["run", "x", "--raw", "--system", "s"], "--raw and --system contradict each other"),
    (["run", "x", "--top", "3"], "--top 3 needs --inspect"),
    (["run", "x", "--revision", "main"], "--revision main needs --model"),
    (["run", "x", "-p", ""], "A preset's name has letters, digits and . _ - only, not ''."),
    (["run", "x", "--stop", "caf\udce9"], "The input must be UTF-8, and --stop has the byte 0xe9 at offset 3"),
    (["run", "x", "--no-stdin", "--chat-template", "-"], "--chat-template - reads standard input, and --no-stdin"),
    (["run", "x", "-f", "-", "--chat-template", "-"], "Standard input can be read only once"),
    (["run", "x", "-p", "nope"], "There is no preset named nope"),
    (["run", "x", "-m", "./nodir"], "There is no such folder: './nodir'."),
    (["run", "x", "-o", "/"], "--output '/' cannot be written: Is a directory."),
    (["run", "x", "-o", "/none/x"], "--output '/none/x' cannot be written: No such file or directory."),
    (["run", "x", "--chat-template", "/none"], "The file '/none' cannot be read: No such file or directory."),
    (["run", ""], "The prompt is empty."),
    (["run"], "There is no prompt"),
    (["run", "x", "--color", "red"], "Invalid value for '--color': 'red' is not one of 'auto', 'always', 'never'."),
    (["rn"], "No such command 'rn'. Did you mean 'run'? See minigen --help."),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE, ids=[" ".join(arguments) for arguments, _ in USAGE])
def test_wrong_usage_is_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """SMP-3, SMP-4, RNG-4, INP-1, INP-10, U11"""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"minigen: {message}")
    assert err.count("\n") == 1


def test_a_literal_backslash_n_in_a_stop_string_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    """INP-8"""
    assert main(["run", "", "--stop", "\\n"]) == 2
    assert "warning: the stop string '\\\\n' holds a backslash and an n" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "sweep", "score", "tokens"])
def test_a_place_that_nothing_takes_is_warned_of(command: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    noun = "prompt" if command in ("run", "sweep") else "text"
    more = ["--raw", "--max-new-tokens", "1"] if noun == "prompt" else []
    assert main([command, "do: {input}", "-m", folder, "--no-stdin", "-q", *more]) == 0
    assert capsys.readouterr().err.startswith(
        f"minigen: warning: {{input}} in the {noun} stays as it is: neither --file nor standard input gave a text.\n"
    )


LIGHT: list[list[str]] = [
    ["--help"],
    ["--version"],
    ["run", "--help"],
    ["run", "--nonsense"],
    ["run", "x", "-p", "nope"],
    ["run", "x", "-t", "-1"],
    ["presets", "list"],
]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_what_needs_no_model_imports_no_torch(arguments: list[str]) -> None:
    """MOD-14"""
    code = (
        "import sys; from minigen.cli.app import main; main(sys.argv[1:]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )
    assert done.returncode == 0


def test_completion_knows_presets_without_torch() -> None:
    """U27"""
    environ = {"_MINIGEN_COMPLETE": "complete_bash", "COMP_WORDS": "minigen run -p gr", "COMP_CWORD": "3"}
    done = run_process(PYTHONPROFILEIMPORTTIME="1", **environ)
    assert done.stdout.split() == [b"greedy"]
    assert b" torch\n" not in done.stderr


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], [], ["run", "-h"], ["run", "x", "--help"], ["presets"]])
def test_help_is_everywhere_and_fits(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """U5, U6"""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("GITHUB_ACTIONS", "1")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "Usage: minigen" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    if arguments in ([], ["-h"]):
        assert out.count("minigen run") == 2


COMMANDS = ["run", "batch", "sweep", "score", "diff", "tokens", "replay", "report", "presets export", "models pull"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_breaks_no_example_inside_its_quotes(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    about = capsys.readouterr().out.partition("╭")[0]
    assert "Example: " in about
    assert all(line.count('"') % 2 == 0 for line in about.splitlines())


def test_help_groups_options_by_what_they_are_about(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["run", "--help"]) == 0
    panels = dict(re.findall(r"╭─ (\w+) ─+╮\n(.*?)╰", capsys.readouterr().out, re.DOTALL))
    assert list(panels) == ["Arguments", "Options", "Input", "Model", "Sampling", "Output"]
    for panel, flags in {
        "Options": ["--help", "--version", "--debug"],
        "Input": ["--file", "--no-stdin"],
        "Model": ["--preset", "--offline", "--trust-remote-code"],
        "Output": ["--inspect", "--json", "--quiet", "--output", "--trace"],
    }.items():
        assert all(flag in panels[panel] for flag in flags), panel


@pytest.mark.parametrize("columns", ["0", "-5", "abc", "99999999999", "9" * 5000, "\u0663", "\u00b2"])
@pytest.mark.parametrize("width", ["", "abc"])
def test_help_takes_any_width(columns: str, width: str) -> None:
    """TTY-14"""
    done = run_process("-h", COLUMNS=columns, TERMINAL_WIDTH=width)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Usage: minigen" in done.stdout


def test_an_unexpected_error_is_a_sentence_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SEC-4"""
    secret = "hf_SECRET"
    monkeypatch.setenv("HF_TOKEN", secret)

    def broken(*arguments: Any, **settings: Any) -> Any:
        raise RuntimeError(f"token {secret} and \x1b[2J")

    monkeypatch.setattr("minigen.presets.load", broken)
    assert main(["run", "x"]) == 1
    err = capsys.readouterr().err
    assert err == (
        "minigen: This is a fault in minigen: RuntimeError: token *** and \\x1b[2J; "
        "run it with --debug for the traceback.\n"
    )
    assert main(["run", "x", "--debug"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert secret not in err
