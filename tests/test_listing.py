"""Lists of presets and models at any width."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from minigen.cli.app import main
from minigen.cli.listing import Heading, print_list
from rich.cells import cell_len
from test_terminal import Terminal

HEADINGS = [Heading("NAME", 0, 8), Heading("KIND", 1), Heading("WHERE", 2, 10)]
ROWS = [("a long name 中文", "user", "/some/place/far/away"), ("b\x1b[2J", "built-in", "-")]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], list[str]]:
    """The lines that a call prints on a terminal of some columns."""

    def on(columns: int, call: Callable[[], object]) -> list[str]:
        terminal = Terminal(columns, 24)
        monkeypatch.setattr("sys.stdout", terminal)
        call()
        lines = [line for line in terminal.lines() if line]
        assert "\x1b[2J" not in terminal.sent
        terminal.close()
        return lines

    return on


def test_a_terminal_s_width_is_kept(listed: Callable[[int, Callable[[], object]], list[str]]) -> None:
    def write() -> None:
        print_list(HEADINGS, ROWS, has_titles=True)

    assert listed(60, write) == [
        "NAME              KIND      WHERE",
        "a long name 中文  user      /some/place/far/away",
        "b\\x1b[2J          built-in  -",
    ]
    assert listed(40, write)[1].endswith("…")
    assert listed(20, write)[0] == "NAME        KIND"
    for width in range(1, 70):
        assert len(listed(width, write)) == 3


def test_a_pipe_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    print_list(HEADINGS, ROWS, has_titles=False)
    assert out.getvalue().splitlines() == [
        "a long name 中文  user      /some/place/far/away",
        "b\\x1b[2J          built-in  -",
    ]


@pytest.mark.parametrize("command", ["presets", "models"])
def test_no_line_of_either_list_breaks(
    command: str, home: Path, listed: Callable[[int, Callable[[], object]], list[str]]
) -> None:
    number = len(listed(400, lambda: main([command, "list"])))
    for width in (20, 40, 60, 80):
        lines = listed(width, lambda: main([command, "list"]))
        assert len(lines) == number
        assert all(cell_len(line) <= width for line in lines)
