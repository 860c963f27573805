"""The prompt from argument, files and standard input."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from minigen.cli.reading import MAX_BYTES, Reader, read_prompt
from minigen.generation.errors import PromptError, UsageError


class Input:
    """A standard input with these bytes."""

    def __init__(self, raw: bytes = b"", *, is_terminal: bool = False) -> None:
        self.buffer = io.BytesIO(raw)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def read(argument: str | None = None, *files: Path, stdin: bytes = b"", use_stdin: bool = True) -> str:
    return read_prompt(Reader(Input(stdin)), argument, files, use_stdin=use_stdin)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(name: str, raw: bytes) -> Path:
        (tmp_path / name).write_bytes(raw)
        return tmp_path / name

    return write


def test_the_parts_stand_in_order_with_a_blank_line_between(written: Callable[[str, bytes], Path]) -> None:
    assert read("ask", written("a", b"one\n"), written("b", b"two"), stdin=b"three") == "ask\n\none\n\ntwo\n\nthree"


@pytest.mark.parametrize(
    ("raw", "text"),
    [(b"A\n", "A"), (b"A", "A"), (b"A\n\n", "A\n"), (b"A\r\n", "A"), (b"\xef\xbb\xbfA\n", "A"), (b" A ", " A ")],
)
def test_one_final_newline_of_stdin_is_dropped(raw: bytes, text: str) -> None:
    """INP-5"""
    assert read(stdin=raw) == text


def test_nothing_is_dropped_from_an_argument() -> None:
    """INP-5, INP-2"""
    assert read("A\n\n") == "A\n\n"
    assert read(" ") == " "


def test_an_empty_stdin_and_an_empty_file_add_nothing(written: Callable[[str, bytes], Path]) -> None:
    assert read("ask", written("a", b""), stdin=b"") == "ask"


def test_the_place_takes_files_and_stdin_once(written: Callable[[str, bytes], Path]) -> None:
    assert read("<{input}> {input}", written("a", b"one"), stdin=b"two") == "<one\n\ntwo> {input}"


def test_an_inserted_text_is_never_searched_for_the_place(written: Callable[[str, bytes], Path]) -> None:
    assert read("do: {input}", written("a", b"{input}"), stdin=b"x") == "do: {input}\n\nx"
    assert read("{input}", stdin=b"{input}") == "{input}"


@pytest.mark.parametrize("noun", ["prompt", "text"])
def test_the_place_stays_where_there_is_nothing_to_insert_and_is_warned_of(
    noun: str, written: Callable[[str, bytes], Path]
) -> None:
    warnings: list[str] = []
    reader = Reader(Input(b"\n"), warn=warnings.append)
    asked = "what does {input} mean?"
    assert read_prompt(reader, asked, [written("a", b"")], noun=noun) == asked
    assert warnings == [
        f"warning: {{input}} in the {noun} stays as it is: neither --file nor standard input gave a text."
    ]


def test_a_place_that_was_filled_or_was_not_typed_is_not_warned_of(written: Callable[[str, bytes], Path]) -> None:
    warnings: list[str] = []
    for argument, name in [("<{input}>", "a"), ("-", "b"), ("plain", "c")]:
        reader = Reader(Input(b"{input}"), warn=warnings.append)
        read_prompt(reader, argument, [written(name, b"{input}")])
    assert warnings == []


def test_a_dash_is_stdin_at_its_place(written: Callable[[str, bytes], Path]) -> None:
    assert read("-", written("a", b"one"), stdin=b"first\n") == "first\n\none"
    assert read("ask", Path("-"), written("a", b"one"), stdin=b"first") == "ask\n\nfirst\n\none"


def test_stdin_is_read_once() -> None:
    with pytest.raises(UsageError, match="only once"):
        read("-", Path("-"))


def test_no_stdin_leaves_a_full_pipe_alone() -> None:
    """INP-9"""
    assert read("ask", stdin=b"more", use_stdin=False) == "ask"
    with pytest.raises(UsageError, match="--no-stdin forbids it"):
        read("-", use_stdin=False)


def test_a_terminal_is_read_only_where_nothing_else_is_given() -> None:
    notes: list[str] = []
    typed = Reader(Input(b"typed\n", is_terminal=True), note=notes.append)
    assert read_prompt(typed, "ask", (), is_stdin_terminal=True) == "ask"
    assert notes == []
    assert read_prompt(typed, None, (), is_stdin_terminal=True) == "typed"
    assert notes == ["Type the prompt; Ctrl-D on a line of its own ends it."]


@pytest.mark.parametrize(("argument", "message"), [(None, "There is no prompt"), ("-", "no prompt"), ("", "is empty")])
def test_no_prompt_is_an_error(argument: str | None, message: str) -> None:
    """INP-1"""
    with pytest.raises(PromptError, match=message):
        read(argument)


def test_bytes_that_are_not_utf8_are_named_with_their_offset(written: Callable[[str, bytes], Path]) -> None:
    """INP-3"""
    with pytest.raises(PromptError, match="standard input has the byte 0xe9 at offset 3"):
        read("Summarise", stdin=b"caf\xe9")
    with pytest.raises(PromptError, match="bad has the byte 0xff at offset 4"):
        read(None, written("bad", b"\xef\xbb\xbfA\xff"))
    with pytest.raises(PromptError, match="the prompt has the byte 0xe9 at offset 3"):
        read("caf\udce9")


def test_control_characters_pass() -> None:
    """INP-11"""
    assert read(stdin=b"a\0b\x1b") == "a\0b\x1b"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none' cannot be read: No such file"):
        read(None, tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read(None, tmp_path)


def test_too_much_input_is_refused_with_size_and_limit(tmp_path: Path) -> None:
    """INP-12"""
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(PromptError, match=r"large has 33,554,433 bytes, and the limit is 33,554,432 bytes \(32 MiB\)"):
        read(None, large)
    small = Reader(Input(b"123456"), limit=10)
    with pytest.raises(PromptError, match=r"standard input has .* after 5 bytes from elsewhere"):
        read_prompt(small, "12345", ())


class SlowInput:
    """A standard input that ends only when someone has been told that it is waited for."""

    def __init__(self) -> None:
        import threading

        self.was_noted = threading.Event()
        self.notes: list[str] = []
        self.buffer = self

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.was_noted.set()

    def read(self, size: int) -> bytes:
        assert self.was_noted.wait(30)
        return b"late"

    def isatty(self) -> bool:
        return False


def test_waiting_for_stdin_says_so() -> None:
    """INP-9"""
    slow = SlowInput()
    assert Reader(slow, note=slow.note, patience=0).stdin() == "late"  # type: ignore[arg-type]  # a double
    assert slow.notes == ["waiting for standard input to end; --no-stdin would leave it alone."]


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_every_name_of_stdin_is_read_once_and_where_it_stands(name: str) -> None:
    assert read("ask", Path(name), stdin=b"text\n") == "ask\n\ntext"
    with pytest.raises(UsageError, match="only once"):
        read("-", Path(name), stdin=b"text")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for_in_silence(tmp_path: Path) -> None:
    """INP-9, for a file"""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    noted: list[str] = []

    def write(text: str) -> None:
        noted.append(text)
        pipe.write_bytes(b"late\n")

    assert Reader(None, note=write, patience=0.01).file(pipe) == "late"
    assert noted == [f"waiting for {str(pipe)!r} to end."]
