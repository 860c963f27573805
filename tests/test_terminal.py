"""What a terminal shows: the live view on a screen in memory, and the whole command on a real pseudo-terminal."""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest
from minigen.cli.coloring import STYLES_OF_256, Coloring
from minigen.cli.live import LiveView
from minigen.cli.terminal import ColorChoice, console_for
from minigen.generation.trace import Output
from rich.cells import cell_len
from stubs import byte_tokenizer, scripted_folder
from test_live import PLAN, Labels, ScriptedEngine, run
from test_stage_tables import WORDS, Labels as OddLabels, inspected_draw


class Terminal(io.StringIO):
    """A stream whose reader is a pyte screen with scrollback, and whose size a real pseudo-terminal holds."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self._master, self._slave = pty.openpty()
        self.screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        self.sent = ""
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def close(self) -> None:
        if not self.closed:  # it is called again when this is collected, and the numbers may be another's then
            super().close()
            os.close(self._master)
            os.close(self._slave)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._slave

    def write(self, text: str) -> int:
        self.sent += text
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def lines(self) -> list[str]:
        """Everything that can be seen, scrolled off or not."""
        gone = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        return [line.rstrip() for line in [*gone, *self.screen.display]]


@pytest.fixture
def small() -> Iterator[Terminal]:
    terminal = Terminal(20, 5)
    yield terminal
    terminal.close()


@pytest.fixture
def usual() -> Iterator[Terminal]:
    terminal = Terminal(80, 24)
    yield terminal
    terminal.close()


def show(terminal: Terminal, engine: ScriptedEngine) -> None:
    """Run an engine on the live view of a terminal, redrawn at every step."""
    console, summary = console_for(terminal, "never"), console_for(terminal, "never")
    run(engine, LiveView(console, summary, Labels(), clock=ticks()))


def ticks() -> Callable[[], float]:
    """A clock on which a second passes with each look."""
    seconds = iter(range(1_000_000))
    return lambda: float(next(seconds))


def test_each_line_of_a_long_text_is_printed_once(small: Terminal) -> None:
    """TTY-9"""
    show(small, ScriptedEngine([piece for i in range(30) for piece in ("line", f" {i}", "\n")]))
    lines = small.lines()
    assert [line for line in lines if line.startswith("line")] == [f"line {i}" for i in range(30)]


def test_no_line_is_doubled_by_emoji_or_a_resize(usual: Terminal) -> None:
    """TTY-11"""
    marks = [f"{i} 👩‍🔬 ❤️ 中文 " + "word " * 20 for i in range(6)]

    def resized(step: int) -> None:
        if step == 70:
            usual.resize(40, 24)

    pieces = [word for mark in marks for word in [*re.findall(r"\S+ *", mark), "\n"]]
    show(usual, ScriptedEngine(pieces, before=resized))
    starts = [line[:1] for line in usual.lines() if re.match(r"\d 👩", line)]
    assert starts == list("012345")


def test_the_table_lives_beneath_the_open_line_and_goes(usual: Terminal) -> None:
    screens: list[list[str]] = []
    engine = ScriptedEngine(["one\n", "two", " three"], before=lambda step: screens.append(usual.lines()))
    show(usual, engine)
    assert screens[2][:5] == [
        "one",
        "two",
        'token 2: "1"  rank 1, entropy 1.00, surprisal 1.01 bits, u 0.1000',
        "   rank  token                   id     logit   raw p  final p  dropped by",
        '>     1  "1"                      1     1.000  0.4966   0.6000',
    ]
    assert [line for line in usual.lines() if line] == [
        "one",
        "two three",
        "step  token                id   raw p  final p  rank  entropy  likeliest other",
        '   1  "0"                   0  0.4966   0.6000     1     1.00',
        '   2  "1"                   1  0.4966   0.6000     1     1.00',
        '   3  "2"                   2  0.4966   0.6000     1     1.00',
    ]


def test_a_small_screen_keeps_text_and_table(small: Terminal) -> None:
    """TTY-14"""
    screens: list[list[str]] = []
    show(small, ScriptedEngine(["word "] * 12, before=lambda step: screens.append(list(small.screen.display))))
    assert screens[-1][0].startswith("rd")  # the last row of the open line
    assert any(row.startswith(">") for row in screens[-1])


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (20, 1), (3, 2)])
def test_no_screen_is_too_small(size: tuple[int, int]) -> None:
    """TTY-14"""
    terminal = Terminal(*size)
    show(terminal, ScriptedEngine(["a", "b\n", "中"]))
    terminal.close()


def test_the_cursor_is_hidden_and_shown_as_often(usual: Terminal) -> None:
    """TTY-2"""

    def failing(step: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        show(usual, ScriptedEngine(["a", "b", "c", "d"], before=failing))
    assert usual.sent.count("\x1b[?25l") == usual.sent.count("\x1b[?25h") == 1
    assert usual.lines()[0] == "abc"


def test_what_a_model_writes_cannot_steer(usual: Terminal) -> None:
    """SEC-1, MKP-1"""
    show(usual, ScriptedEngine(["\x1b[2J", "\x1b]0;pwn\x07", "\x9b2J", "a\rb", "\u202e", " [/INST] [b]x[/b]"]))
    assert usual.lines()[0] == "\\x1b[2J\\x1b]0;pwn\\x07\\x9b2Ja\\rb\\u202e [/INST] [b]x[/b]"
    assert usual.screen.title == ""


def test_little_is_drawn_for_a_long_text(usual: Terminal) -> None:
    """TTY-12: redraws are bound by time, not by tokens."""
    console = console_for(usual, "never")
    view = LiveView(console, console, Labels(), clock=lambda: 0.0)
    view.begin(0)
    engine = ScriptedEngine(["word "] * 2000)
    engine.add_request(PLAN.prompt, PLAN.params)
    for output in engine.left:
        view.show(output)
    assert usual.sent.count("token") == 2  # one drawing: what was chosen, and the column
    view.close()


class StagedEngine(ScriptedEngine):
    """Draws with stages and margins, over nine candidates whose labels are as odd as can be."""

    def _output(self, step: int, piece: str) -> Output:
        return Output(request_id="0", text=piece, token_id=0, draw=inspected_draw(9, step % 6))


ODD = [
    "word ",
    "中文中文 ",
    "e\u0301e\u0301 ",
    "👩‍🔬❤️ ",
    "\x1b[2J",
    "\x1b]0;pwn\x07",
    "[/INST] ",
    "a\tb\r\n",
    "\u202e",
    "\x9b31m",
] * 4


@pytest.mark.parametrize("choice", ["always", "never"])
@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 5), (20, 24)])
def test_stages_and_margins_share_the_screen_with_the_text(
    size: tuple[int, int], choice: ColorChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TTY-13, TTY-14, SEC-1, MKP-2: the text keeps a row, no row is wider than the screen, nothing steers."""
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal(*size)
    screens: list[list[str]] = []
    engine = StagedEngine(ODD, before=lambda step: screens.append(list(terminal.screen.display)))
    view = LiveView(
        console_for(terminal, choice),
        console_for(terminal, choice),
        OddLabels(),
        words=WORDS,
        coloring=Coloring("prob", STYLES_OF_256, OwnLabels()) if choice == "always" else None,
        clock=ticks(),
    )
    run(engine, view)
    for screen in screens[1:-1]:
        heads = [line.split()[0] for line in screen if line.strip()]
        place = heads.index("token")
        assert place >= 1, "the text has a row"
        assert ">" in heads
        assert ("stage" in heads) is (size[1] >= 10)
        assert ("setting" in heads or "picked" in heads) is (size[1] >= 24)
    assert terminal.screen.title == ""
    assert "\x1b[2J" not in terminal.sent
    assert "\x9b" not in terminal.sent
    terminal.close()


class OwnLabels:
    def text(self, token_id: int) -> str:
        return "?"

    def is_special(self, token_id: int) -> bool:
        return False


def test_the_live_text_has_the_colours_of_its_tokens(usual: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    console = console_for(usual, "always")
    coloring = Coloring("prob", STYLES_OF_256, OwnLabels())
    run(
        ScriptedEngine(["one\n", "two", " " + "x" * 100, "\n"]), LiveView(console, console, Labels(), coloring=coloring)
    )
    buffer = usual.screen.buffer
    assert [buffer[0][x].bg for x in range(4)] == ["878787"] * 3 + ["default"]
    assert [buffer[1][x].bg for x in (0, 79)] == ["878787", "878787"]
    assert [buffer[2][x].bg for x in (0, 23, 24)] == ["878787", "878787", "default"]
    assert usual.sent.count("x" * 24 + "\x1b[0m\x1b[K\n") == 0  # wrapped by the terminal itself, in one piece
    assert "x" * 100 + "\x1b[0m\x1b[0K\n" in usual.sent or "x" * 100 + "\x1b[0m\x1b[K\n" in usual.sent
    assert all(cell_len(line) <= 80 for line in usual.lines())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes control codes after a prompt of two tokens."""
    script = [*b"one \x1b[2J\ntwo", 257]
    return scripted_folder(
        tmp_path_factory.mktemp("model"), script, prompt_length=2, tokenizer=byte_tokenizer(), window=64
    )


def on_terminal(*arguments: str, signal_at: bytes | None = None) -> tuple[int, str]:
    """Run the command on a pseudo-terminal; give its exit code and all that it sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "minigen.cli", *arguments]
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": ""}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    sent = b""
    try:
        while chunk := os.read(master, 65536):
            sent += chunk
            if signal_at is not None and signal_at in sent:
                process.send_signal(signal.SIGINT)
                signal_at = None
    except OSError:  # Linux says so when the last writer is gone
        pass
    os.close(master)
    return process.wait(60), sent.decode()


def shown_on_screen(sent: str) -> list[str]:
    screen = pyte.Screen(80, 24)
    pyte.Stream(screen).feed(sent)
    return [line.rstrip() for line in screen.display if line.strip()]


def test_the_command_shows_status_text_and_statistics(folder: Path) -> None:
    """SEC-1, U12, TTY-19"""
    code, sent = on_terminal("run", "ab", "--raw", "-m", str(folder), "-t", "0", "--seed", "7")
    assert code == 0
    assert f"loading {folder} ..." in sent
    lines = shown_on_screen(sent)
    assert lines[:2] == ["one \\x1b[2J", "two"]
    assert lines[2].startswith("2 prompt + 13 new tokens · first token")
    assert "seed 7 · stop" in " ".join(lines[2:])


def test_ctrl_c_while_loading_ends_quietly(folder: Path) -> None:
    """U21, TTY-2"""
    code, sent = on_terminal("run", "ab", "--raw", "-m", str(folder), signal_at=b"loading")
    assert code == 130
    assert shown_on_screen(sent) == ["minigen: interrupted."]
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h")
