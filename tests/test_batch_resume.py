"""A batch that is interrupted and continued: nothing is lost, nothing is done twice, and the texts are the same."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from minigen.cli import batch_output
from minigen.cli.app import main
from minigen.cli.batch_earlier import BEGINNING, Done, read_earlier
from minigen.cli.batch_input import LineReader
from minigen.cli.batch_output import RecordFile
from minigen.generation.errors import RunError, UsageError
from test_batch_command import LINES, batch, by_line, lines_of, records
from tiny_folders import tiny_folder

MANY = [{"prompt": f"Line {n}" + "x" * (n % 23), "max_new_tokens": 1 + n * 7 % 19, "id": n} for n in range(1, 301)]
# Imports once, then lets children do the work and kills them: a child is a fork that has loaded nothing yet.
KILLER = """
import os, random, signal, sys, time
import torch, transformers
from minigen.cli.app import main
from minigen.generation import engine, model
out, times, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
chosen = random.Random(times)
size = lambda: os.path.getsize(out) if os.path.exists(out) else 0
for _ in range(times):
    goal = size() + chosen.randrange(1, 9000)
    child = os.fork()
    if child == 0:
        os._exit(main(arguments))
    while size() < goal and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if chosen.random() < 0.5:  # as if the last write had been cut
        os.truncate(out, max(0, size() - chosen.randrange(1, 40)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"))


pytestmark = pytest.mark.usefixtures("no_stdin", "in_folder")


def whole(folder: Path, *flags: str, given: Any = LINES) -> list[bytes]:
    """The lines of an undisturbed output, in the order of the input."""
    assert batch(folder, "-o", "whole", "--ordered", *flags, given=given) in (0, 1)
    return Path("whole").read_bytes().splitlines(keepends=True)


def done_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lines whose records are written from here on."""
    written: list[int] = []
    write = RecordFile.write

    def watched(self: RecordFile, record: Any) -> None:
        written.append(record["line"])
        write(self, record)

    monkeypatch.setattr(RecordFile, "write", watched)
    return written


@pytest.mark.parametrize("flags", [[], ["--ordered"]], ids=["as they finish", "in order"])
def test_killed_ten_times_it_loses_and_repeats_nothing(folder: Path, flags: list[str]) -> None:
    """R13: whatever a kill leaves, the next run goes on from there."""
    expected = whole(folder, "--seed", "5", given=MANY)
    arguments = [
        "batch",
        "in.jsonl",
        "-m",
        str(folder),
        "--device",
        "cpu",
        "--seed",
        "5",
        "-o",
        "out",
        "--resume",
        *flags,
    ]
    script = [sys.executable, "-c", KILLER, "out", "10", *arguments]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    kept = [line for line in Path("out").read_bytes().split(b"\n")[:-1] if line]
    assert 0 < len(kept) < 300
    assert main(arguments) == 0
    found = Path("out").read_bytes().splitlines(keepends=True)
    assert sorted(found) == sorted(expected)
    assert {line + b"\n" for line in kept} <= set(found)
    if flags:
        assert found == expected


@pytest.mark.parametrize("flags", [[], ["--ordered"]], ids=["as they finish", "in order"])
@pytest.mark.parametrize("torn", [0, 1, 2, 9, 60, 400])
def test_a_torn_end_is_repaired(folder: Path, monkeypatch: pytest.MonkeyPatch, torn: int, flags: list[str]) -> None:
    expected = whole(folder, "--seed", "5")
    Path("out").write_bytes(b"".join(expected[:3])[: len(b"".join(expected[:3])) - torn])
    written = done_again(monkeypatch)
    assert batch(folder, "--seed", "5", "-o", "out", "--resume", *flags) == 0
    found = Path("out").read_bytes().splitlines(keepends=True)
    assert (found if flags else sorted(found)) == (expected if flags else sorted(expected))
    num_left = {0: 3, 1: 3}.get(torn, 4 if torn < 400 else 5)  # an end without its newline alone is whole
    assert len(written) == num_left


@pytest.mark.parametrize("torn", [0, 30, 500])
def test_zeros_at_the_end_are_a_torn_end(folder: Path, torn: int) -> None:
    """A file system may leave them after a power cut, where bytes were to be written."""
    expected = whole(folder, "--seed", "5")
    begun = b"".join(expected[:3])
    Path("out").write_bytes(begun[: len(begun) - torn] + bytes(300))
    assert batch(folder, "--seed", "5", "-o", "out", "--resume") == 0
    assert sorted(Path("out").read_bytes().splitlines(keepends=True)) == sorted(expected)


def test_a_record_that_grew_where_its_id_is_escaped_is_known_again(folder: Path) -> None:
    """A control character takes six bytes there."""
    rest = b', "prompt": "x", "max_new_tokens": 1}\n'
    Path("grown.jsonl").write_bytes(b'{"id": "%s"%s{"id": 2%s' % (b"\x7f" * 12_000_000, rest, rest))
    arguments = ["batch", "grown.jsonl", "-m", str(folder), "--device", "cpu", "--raw", "--seed", "5", "-o", "out"]
    assert main(arguments) == 0
    expected = Path("out").read_bytes()
    first, _ = expected.splitlines(keepends=True)
    assert len(first) > 2**26
    Path("out").write_bytes(first)
    assert main([*arguments, "--resume"]) == 0
    assert Path("out").read_bytes() == expected


def test_what_is_missing_in_the_middle_is_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --ordered the file is put in order at the end."""
    expected = whole(folder, "--seed", "5")
    mixed = [expected[4], expected[0], expected[5]]
    for flags in ([], ["--ordered"]):
        Path("out").write_bytes(b"".join(mixed))
        with monkeypatch.context() as patch:
            written = done_again(patch)
            assert batch(folder, "--seed", "5", "-o", "out", "--resume", *flags) == 0
        assert sorted(written) == [2, 3, 4]
        found = Path("out").read_bytes().splitlines(keepends=True)
        assert found == expected if flags else found[:3] == mixed
        assert sorted(found) == sorted(expected)


def test_a_done_output_is_left_as_it_is_and_no_model_is_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = whole(folder, "--seed", "5")
    before = Path("whole").stat().st_mtime_ns
    capsys.readouterr()
    Path("empty").mkdir()
    assert main(["batch", "in.jsonl", "-m", "./empty", "-o", "whole", "--resume", "--seed", "9"]) == 0
    assert capsys.readouterr().err == "minigen: nothing is left to do: the output has all of the 6 requests.\n"
    assert (Path("whole").read_bytes(), Path("whole").stat().st_mtime_ns) == (b"".join(expected), before)
    Path("whole").write_bytes(b"".join(reversed(expected)) + expected[0][:30])
    assert main(["batch", "in.jsonl", "-m", "./empty", "-o", "whole", "--resume", "--ordered"]) == 0
    assert Path("whole").read_bytes() == b"".join(expected)


def test_resume_begins_an_output_that_is_not_there(folder: Path) -> None:
    for start in (None, b""):
        if start is not None:
            Path("out").write_bytes(start)
        assert batch(folder, "--seed", "5", "-o", "out", "--resume") == 0
        assert len(by_line(Path("out").read_text())) == 6
        Path("out").unlink()


def test_lines_may_be_added(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole(folder, "--seed", "5")
    written = done_again(monkeypatch)
    assert batch(folder, "--seed", "5", "-o", "whole", "--resume", given=[*LINES, {"prompt": "new"}, ""]) == 0
    assert written == [7]


def test_failed_lines_are_done_again_and_may_be_mended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[dict[str, Any] | str | bytes] = [LINES[0], "{", LINES[1], {"prompt": ""}, LINES[3]]
    assert batch(folder, "--seed", "5", "-o", "out", "--ordered", given=given) == 1
    written = done_again(monkeypatch)
    assert batch(folder, "--seed", "5", "-o", "out", "--ordered", "--resume", given=given) == 1
    assert written == [2, 4]
    given[1] = {"prompt": "mended", "max_new_tokens": 2}
    assert batch(folder, "--seed", "5", "-o", "out", "--ordered", "--resume", given=given) == 1
    assert written == [2, 4, 2, 4]
    found = records(Path("out").read_text())
    assert [record["line"] for record in found] == [1, 2, 3, 4, 5]
    assert ["error" in record for record in found] == [False, False, False, True, False]
    capsys.readouterr()
    assert batch(folder, "--seed", "5", "-o", "out", "--resume", given=[*given[:3], "", given[4]]) == 0
    assert [record["line"] for record in records(Path("out").read_text())] == [1, 2, 3, 5]


def test_a_seed_that_was_chosen_goes_on(folder: Path) -> None:
    assert batch(folder, "-o", "out", "--ordered") == 0
    expected = Path("out").read_bytes()
    Path("out").write_bytes(b"".join(expected.splitlines(keepends=True)[1:3]))
    assert batch(folder, "-o", "out", "--ordered", "--resume") == 0
    assert Path("out").read_bytes() == expected


# --- what cannot be continued


def refusals(folder: Path, capsys: pytest.CaptureFixture[str], *flags: str, given: Any = LINES) -> str:
    """What is said of a batch that cannot be continued, whose output is left as it was."""
    before = Path("out").read_bytes()
    capsys.readouterr()
    assert batch(folder, "-o", "out", "--resume", *flags, given=given) == 2
    assert Path("out").read_bytes() == before
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.removeprefix("minigen: ").removesuffix("\n")


def test_a_changed_input_is_noticed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").write_bytes(b"".join(whole(folder, "--seed", "5")[:4]))
    advice = "give the input that it was begun with, or another --output."
    changed = [*LINES[:2], {**LINES[2], "seed": 6}, *LINES[3:]]
    assert refusals(folder, capsys, given=changed) == (
        f"Line 3 of the input has changed since --output 'out' was begun: {advice}"
    )
    assert refusals(folder, capsys, given=["", *LINES]).startswith("Line 1 of the input has changed")
    assert refusals(folder, capsys, given=LINES[:3]) == (
        f"--output 'out' holds line 4, and the input has 3 lines: {advice}"
    )


def test_a_changed_pipe_is_noticed_when_the_line_comes(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(folder, "--seed", "5")
    for given, code in ((LINES, 0), (LINES[1:], 2), (LINES[:3], 2)):
        Path("out").write_bytes(b"".join(expected[:4]))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines_of(*given))))
        capsys.readouterr()
        assert (
            main(["batch", "-", "-m", str(folder), "--device", "cpu", "--seed", "5", "-o", "out", "--resume"]) == code
        )
        assert ("give the input that it was begun with" in capsys.readouterr().err) == bool(code)
        assert Path("out").read_bytes().startswith(b"".join(expected[:4]))


@pytest.mark.parametrize(
    ("flags", "difference"),
    [
        (["--seed", "6"], "seed was 5 and is 6"),
        (["--temperature", "0.5"], "temperature was 0.8 and is 0.5"),
        (["--top-k", "3"], "top_k was not set and is 3"),
        (["--system", "Be\x1b brief."], 'system was not set and is "Be\\u001b brief."'),
        (["--raw"], 'mode was "chat" and is "raw"'),
        (["--dtype", "bfloat16"], 'dtype was "float32" and is "bfloat16"'),
        (["--truncate", "head"], 'truncate was not set and is "head"'),
        (["--logit-bias", "5=-inf"], "logit_bias was not set and is 5=-inf"),
        (["--stop", "x" * 999], "stop was not set and is \"sha256:"),
        (["--lines"], "lines was not set and is true"),
    ],
)  # fmt: skip
def test_other_settings_are_noticed(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], difference: str
) -> None:
    Path("out").write_bytes(b"".join(whole(folder, "--seed", "5")[:4]))
    said = refusals(folder, capsys, *flags)
    assert said.startswith(f"--output 'out' was begun with other settings: {difference}")
    assert said.endswith("Give the same, or another --output.")


def test_the_number_of_requests_at_a_time_may_change(folder: Path) -> None:
    expected = whole(folder, "--seed", "5")
    Path("out").write_bytes(b"".join(expected[:4]))
    flags = ["--max-running", "2", "--kv-memory", "128kB", "--threads", "1"]
    assert batch(folder, "-o", "out", "--ordered", "--resume", *flags) == 0
    assert Path("out").read_bytes().splitlines(keepends=True) == expected


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda lines: [b"A diary.\n"], 1),
        (lambda lines: [b"A diary without an end"], 1),
        (lambda lines: [*lines, b"\n"], 5),
        (lambda lines: [lines[0], lines[1][:50] + b"\n", *lines[2:]], 2),
        (lambda lines: [lines[0], b'{"schema":1}\n', *lines[1:]], 2),
        (lambda lines: [lines[0].replace(b'"line":1', b'"line":0')], 1),
        (lambda lines: [lines[0].replace(b'"line":1', b'"line":true')], 1),
        (lambda lines: [lines[0].replace(b'"schema":1', b'"schema":2')], 1),
        (lambda lines: [lines[0].replace(b'"input":"', b'"input":"z')], 1),
        (lambda lines: [b"[" * 100_000 + b"\n"], 1),
        (lambda lines: [b"\xff\xfe\n"], 1),
    ],
)
def test_a_file_of_something_else_is_left_alone(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[list[bytes]], list[bytes]],
    line: int,
) -> None:
    Path("out").write_bytes(b"".join(spoil(whole(folder, "--seed", "5")[:4])))
    assert refusals(folder, capsys) == (
        f"--output 'out' holds something else than records of minigen batch, in line {line}."
    )


def test_records_that_do_not_belong_together_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = whole(folder, "--seed", "5"), whole(folder, "--seed", "6", "--overwrite")
    Path("out").write_bytes(one[0] + other[1])
    assert refusals(folder, capsys) == "--output 'out' holds records of two runs: seed was 5 and is 6."
    Path("out").write_bytes(b"".join([*one[:3], one[1]]))
    assert refusals(folder, capsys) == "--output 'out' holds line 2 twice: keep one of its records."


# --- signals, and disks that fail


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("flags", [[], ["--ordered"]], ids=["as they finish", "in order"])
def test_a_signal_keeps_what_has_finished_and_resume_goes_on(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
    flags: list[str],
) -> None:
    """TTY-4, U21: the signal comes while the fortieth record is written."""
    expected = whole(folder, "--seed", "5", given=MANY)
    written, write = [0], RecordFile.write

    def interrupting(self: RecordFile, record: Any) -> None:
        written[0] += 1
        if written[0] == 40:
            os.kill(os.getpid(), number)
        write(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "write", interrupting)
        assert batch(folder, "--seed", "5", "-o", "out", *flags, given=MANY) == code
    word = "interrupted" if code == 130 else "terminated"
    assert (
        capsys.readouterr().err == f"minigen: {word}; what is done is written, and --resume goes on with the others.\n"
    )
    kept = Path("out").read_bytes().splitlines(keepends=True)
    assert 40 <= len(kept) < 100
    assert set(kept) <= set(expected)
    assert batch(folder, "--seed", "5", "-o", "out", "--resume", *flags, given=MANY) == 0
    found = Path("out").read_bytes().splitlines(keepends=True)
    assert (found if flags else sorted(found)) == (expected if flags else sorted(expected))


def test_a_disk_that_fails_at_any_step_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: the n-th write, cut, renaming or reading fails; what was done stays, and the next run goes on."""
    expected = whole(folder, "--seed", "5", given=[*LINES, ""])
    failed = json.loads(expected[5]) | {"error": "It failed.", "finish_reason": "error"}
    start = expected[3] + json.dumps(failed, separators=(",", ":")).encode() + b"\n" + expected[0] + expected[1][:77]
    for name in ("write", "ftruncate", "fsync", "replace"):
        for nth in (0, 1, 2):
            Path("out").write_bytes(start)
            with monkeypatch.context() as patch:
                _fail_at(patch, name, nth)
                code = batch(folder, "--seed", "5", "-o", "out", "--resume", "--ordered")
            assert code in (0, 1)
            assert [*Path().glob(".minigen-*")] == []
            lines = Path("out").read_bytes().split(b"\n")[:-1]
            assert {expected[0][:-1], expected[3][:-1]} <= set(lines)
            assert batch(folder, "--seed", "5", "-o", "out", "--resume", "--ordered") == 0
            assert Path("out").read_bytes() == b"".join(expected)


def _fail_at(patch: pytest.MonkeyPatch, name: str, nth: int) -> None:
    """Let the system's n-th call of a kind fail."""
    real, count = getattr(os, name), iter(range(1_000_000))

    def failing(*arguments: Any) -> Any:
        if next(count) == nth:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    patch.setattr(batch_output.os, name, failing)


def test_every_record_begins_as_a_torn_one_must(folder: Path) -> None:
    for line in whole(folder, "--seed", "5", given=[*LINES, {"prompt": ""}]):
        assert line.startswith(BEGINNING)


def test_a_record_is_written_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system may take a part of a write, and then refuse the rest."""
    calls = iter([5, 5, OSError(28, "No space left on device")])
    real = os.write

    def piecemeal(descriptor: int, data: bytes) -> int:
        step = next(calls)
        if isinstance(step, OSError):
            raise step
        return real(descriptor, data[:step])

    with RecordFile(Path("out"), does_resume=False, does_overwrite=False) as records:
        records.begin()
        records.write({"line": 1})
        monkeypatch.setattr(batch_output.os, "write", piecemeal)
        with pytest.raises(RunError, match="could not be written: No space left on device"):
            records.write({"line": 2, "text": "long"})
        monkeypatch.setattr(batch_output.os, "write", real)
        records.write({"line": 3})
    assert Path("out").read_bytes() == b'{"line":1}\n{"line":3}\n'


def test_what_is_done_is_asked_in_the_order_of_the_lines(folder: Path) -> None:
    Path("out").write_bytes(b"".join(whole(folder, "--seed", "5")[4:0:-2]))
    earlier = read_earlier(Path("out"), "out")
    assert (list(earlier.lines), earlier.is_ascending, earlier.last_line) == ([3, 5], False, 3)
    done = Done(earlier)
    with Path("in.jsonl").open("rb") as stream:
        lines = list(LineReader(stream, "in"))
    assert [done.holds(line) for line in lines] == [False, False, True, False, True, False]
    done.check_end(6)
    with pytest.raises(UsageError, match="holds line 5, and the input has 4 lines"):
        Done(earlier).check_end(4)
