"""The picture of a traced run: what a terminal would show, and nothing that reaches out of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from minigen.cli.app import main
from minigen.cli.picture import picture_of
from minigen.cli.tables import probability
from report_traces import traced, write_trace

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "[/x]",
    "</text><script>x()</script>",
    "\x1b[2J",
    "&amp;",
    "\u202e",
    "]]>",
    "[bold]b",
    "\x00",
    "\ud800",
    "中🙂",
    "\uffff",
]


def texts(picture: str) -> list[str]:
    """The lines of a picture, as a reader sees them."""
    found: dict[float, list[tuple[float, str]]] = {}
    for text in ElementTree.fromstring(picture).iter(f"{SVG}text"):
        if "clip-path" in text.attrib:  # not the title
            found.setdefault(float(text.attrib["y"]), []).append((float(text.attrib["x"]), text.text or ""))
    return [
        "".join(piece for _, piece in sorted(line)).replace("\xa0", " ").rstrip("\n")
        for _, line in sorted(found.items())
    ]


def test_a_picture_shows_the_text_and_the_tables_of_a_token() -> None:
    trace = traced(["Hello", ",", " wide", " world"], prompt="Say:")
    lines = texts(picture_of(trace, tokens=[2]))
    assert lines[:2] == ["Say:", "Hello, wide world"]
    record = trace.samples[0].tokens[1]
    chosen = next(line for line in lines if line.startswith(">"))
    assert chosen.split()[-1] == probability(record["final_prob"])
    assert [line.split()[0] for line in lines if line.startswith(("raw", "temperature ", "top_k ", "top_p "))][:4] == [
        stage["name"] for stage in record["stages"]
    ]
    assert any(line.startswith("unchanged, one setting at a time:") for line in lines) == (
        "margins" in (trace.samples[0].document or {})
    )


@pytest.mark.parametrize("measure", ["prob", "rank", "entropy", "surprisal", None])
def test_nothing_in_a_text_gets_out_of_a_picture(measure: Any) -> None:
    """MKP-2, SEC-1"""
    picture = picture_of(traced(HOSTILE, prompt="".join(HOSTILE), model="<b>&"), measure=measure, tokens=range(1, 12))
    root = ElementTree.fromstring(picture)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "style", "defs", "clipPath", "rect", "g", "circle", "text"}
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|url\((?!#)|@import|@font-face", picture)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff\ufffe\uffff]", picture)
    shown = "\n".join(texts(picture))
    for text in (
        "[/x]",
        "</text><script>x()</script>",
        r"\x1b[2J",
        "&amp;",
        "]]>",
        "[bold]b",
        r"\x00",
        r"\ud800",
        "中",
    ):
        assert text in shown


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_no_line_is_wider_than_the_picture(columns: int) -> None:
    trace = traced(["Hello", " world", "中" * 30, "x" * 50, "🙂"] * 3)
    picture = picture_of(trace, measure="surprisal", tokens=[1, 3, 4], columns=columns)
    from rich.cells import cell_len

    assert max(cell_len(line) for line in texts(picture)) <= columns


def test_the_command_writes_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "run.trace", tmp_path / "run.svg"
    write_trace(traced(["Hello", " world"]), source)
    assert main(["report", str(source), "--svg", "--color-by", "rank", "--token", "1", "-o", str(target)]) == 0
    assert texts(target.read_text("utf-8"))[0].startswith("colour by rank:")
    assert capsys.readouterr().err.startswith(f"minigen: Wrote {target} (")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--svg", "--token", "3"], "--token 3 is not in the trace, whose sample 0 has 2."),
        (["--svg", "--token", "0"], "--token 0 is not in the trace, whose sample 0 has 2."),
        (["--svg", "--sample", "1"], "--sample 1 is not in the trace"),
        (["--svg", "--columns", "5"], "--columns must be a whole number between 20 and 400, not 5."),
        (["--token", "1"], "--color-by, --token, --sample and --columns need --svg"),
    ],
)
def test_what_a_picture_cannot_show_is_refused(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "run.trace"
    write_trace(traced(["Hello", " world"]), source)
    assert main(["report", str(source), *flags, "-o", str(tmp_path / "x.svg")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x.svg").exists()
