"""A message begins a line of its own where a text without a final newline has stopped."""

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from minigen.cli.notes import Notes, say
from minigen.cli.shared_line import wrote
from processes import COMMAND
from stubs import byte_tokenizer, scripted_folder

TEXT = "one\ntwo"


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A run that writes TEXT."""
    path = tmp_path_factory.mktemp("model")
    scripted_folder(path, [*TEXT.encode(), 257], prompt_length=2, tokenizer=byte_tokenizer(), window=64)
    return [*COMMAND, "run", "ab", "--raw", "-m", str(path), "-t", "0", "--seed", "7"]


@pytest.fixture
def shared() -> Iterator[tuple[TextIO, TextIO, TextIO]]:
    """Two streams that lead into one pipe, and what reads it."""
    reader, writer = os.pipe()
    with (
        open(reader, encoding="utf-8") as seen,
        open(writer, "w", encoding="utf-8") as text,
        os.fdopen(os.dup(writer), "w", encoding="utf-8") as messages,
    ):
        yield text, messages, seen


def write(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()
    wrote(text, stream)


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        (["two"], "two\nminigen: terminated.\nseed 7\n"),
        (["two", ""], "two\nminigen: terminated.\nseed 7\n"),
        (["two\n"], "two\nminigen: terminated.\nseed 7\n"),
        ([""], "minigen: terminated.\nseed 7\n"),
    ],
)
def test_one_newline_parts_an_unfinished_text_from_what_is_said(
    pieces: list[str], seen: str, shared: tuple[TextIO, TextIO, TextIO]
) -> None:
    text, messages, reader = shared
    for piece in pieces:
        write(piece, text)
    say("terminated.", messages)
    Notes(messages).plain("seed 7")
    assert os.read(reader.fileno(), 4096).decode() == seen


def test_text_that_goes_on_after_a_message_is_parted_again(shared: tuple[TextIO, TextIO, TextIO]) -> None:
    text, messages, reader = shared
    for piece in ("one", "two"):
        write(piece, text)
        say("…", messages)
    assert os.read(reader.fileno(), 4096).decode() == "one\nminigen: …\ntwo\nminigen: …\n"


def test_one_pipe_for_both_streams_keeps_them_apart(command: list[str]) -> None:
    done = subprocess.run(
        [*command, "-v"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    lines = done.stdout.decode().splitlines()
    assert lines[-3:-1] == ["one", "two"]
    assert lines[-1].startswith("2 prompt + 8 new tokens")


def test_one_pipe_gets_nothing_but_the_text_where_nothing_is_said(command: list[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    assert done.stdout == TEXT.encode()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--order", "vllm"], "\r\nminigen: with minigen's order 0 of 8 steps would have had other candidates.\r\n2 p"),
        ([], "\r\n2 prompt + 8 new tokens"),
        (["-n", "2"], "\r\n2 samples · 2 prompt + 16 new tokens"),
    ],
)
def test_a_terminal_beside_a_pipe_begins_a_line(flags: list[str], said: str, command: list[str]) -> None:
    text, told = beside_a_terminal([*command, *flags], subprocess.PIPE)
    assert text == (TEXT if "-n" not in flags else f"{TEXT}\n---\n{TEXT}").encode()
    assert told.startswith(said)


def test_a_terminal_beside_a_pipe_stays_empty_where_nothing_is_said(command: list[str]) -> None:
    assert beside_a_terminal([*command, "-q"], subprocess.PIPE) == (TEXT.encode(), "")


def test_a_terminal_beside_a_file_begins_no_line(command: list[str], tmp_path: Path) -> None:
    with open(tmp_path / "text", "wb") as file:
        _, told = beside_a_terminal(command, file.fileno())
    assert (tmp_path / "text").read_bytes() == TEXT.encode()
    assert told.startswith("2 prompt + 8 new tokens")


def beside_a_terminal(command: list[str], out: int) -> tuple[bytes | None, str]:
    """Run a command whose messages go to a terminal that cannot be redrawn; give the text, and what was told."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "dumb"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=slave, env=environ)
    os.close(slave)
    text = process.stdout.read() if process.stdout is not None else None
    if process.stdout is not None:
        process.stdout.close()
    assert process.wait(60) == 0
    told = b""
    try:
        while chunk := os.read(master, 65536):
            told += chunk
    except OSError:  # Linux says so when the last writer is gone
        pass
    os.close(master)
    return text, told.decode()
