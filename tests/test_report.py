"""The report: its numbers against the trace's, its text, what it lets through, and the command that writes it."""

from __future__ import annotations

import base64
import codecs
import hashlib
import itertools
import json
import math
import os
import pty
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings as how, strategies as st
from minigen.cli.app import main
from minigen.cli.escaping import shown, shown_in_cell
from minigen.cli.report_data import STEP, data_of
from minigen.cli.report_page import page_of
from minigen.cli.report_text import CUT, SILENT, SPECIAL, TEXT, pieces
from minigen.generation.progress import bytes_text
from report_traces import SETTINGS, Step, ranked, traced, write_trace

WORDS = ["Hello", ",", " wide", " world", "!", "\n", "\n", "Bye", " now", "."]
PAGE = files("minigen.cli") / "page"


class Reader(HTMLParser):
    """Reads a page: its elements with their texts, the way a browser without scripts would."""

    VOID = ("meta", "wbr", "input", "br")

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = (tag, dict(attrs), list[str]())
        self.elements.append(element)
        if tag not in self.VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if self._open.pop()[0] != tag:
            raise ValueError(f"{tag} closes another element")

    def handle_data(self, data: str) -> None:
        for _, _, texts in self._open:
            texts.append(data)

    def texts(self, tag: str, **attributes: str) -> list[str]:
        """The texts of elements of a kind, `class_` and `id` as given."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return ["".join(text) for name, has, text in self.elements if name == tag and wanted.items() <= has.items()]


def steps_of(data: Mapping[str, Any], sample: int = 0) -> list[dict[str, Any]]:
    """The steps of the page's data, by the names of their parts."""
    return [dict(zip(STEP, step, strict=True)) for step in data["samples"][sample]["steps"]]


def told(text: str, token: str | None = None, *, special: bool = False) -> dict[str, Any]:
    """What the sharing of a text asks of a token's record."""
    return {"id": 1, "text": text, "token": text if token is None else token, "special": special}


def kinds_of(tokens: list[dict[str, Any]], text: str) -> list[tuple[str, int]]:
    found, rest = pieces(tokens, text)
    assert "".join(piece.text for piece in found) + rest == text
    return [(piece.text, piece.kind) for piece in found]


def test_text_that_was_held_back_stands_with_its_own_token() -> None:
    tokens = [told("A"), told("", " f"), told(" farm", "arm")]
    assert kinds_of(tokens, "A farm") == [("A", TEXT), (" f", TEXT), ("arm", TEXT)]


def test_the_parts_of_a_character_stand_with_the_last_of_them() -> None:
    tokens = [told("x"), told("", "\ufffd"), told("", "\ufffd"), told("é€"[:1], "\ufffd"), told("y")]
    assert kinds_of(tokens, "xéy") == [("x", TEXT), ("", SILENT), ("", SILENT), ("é", TEXT), ("y", TEXT)]


def test_what_a_stop_string_took_is_told() -> None:
    tokens = [told("ab"), told("c", "c\n"), told("", "\nEND")]
    assert kinds_of(tokens, "abc") == [("ab", TEXT), ("c", CUT), ("", CUT)]
    assert [piece.mark for piece in pieces(tokens, "abc")[0]] == ["", "\\n", "\\nEND"]


def test_special_tokens_are_no_text() -> None:
    tokens = [told("a"), told("", "<|end|>", special=True)]
    assert kinds_of(tokens, "a") == [("a", TEXT), ("", SPECIAL)]


def test_the_space_before_a_first_word_may_be_gone() -> None:
    assert kinds_of([told("The", " The"), told(" end")], "The end") == [("The", TEXT), (" end", TEXT)]


def test_tokens_that_read_otherwise_alone_keep_what_they_released() -> None:
    tokens = [told("un"), told("", "##it"), told("its", "##s"), told(" ok", "ok")]
    assert kinds_of(tokens, "units ok") == [("un", TEXT), ("", SILENT), ("its", TEXT), (" ok", TEXT)]


def test_text_without_a_token_is_the_rest() -> None:
    assert pieces([told("a"), told("")], "ab")[1] == "b"
    assert pieces([], "ab") == ([], "ab")
    assert kinds_of([told("x")], "other") == [("", SILENT)]  # a file that contradicts itself


@how(max_examples=100, deadline=None)
@given(st.text(max_size=12), st.data())
def test_pieces_join_to_the_text_however_its_bytes_are_cut(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)))) | {0, len(raw)})
    decoder, tokens = codecs.getincrementaldecoder("utf-8")(), []
    for start, end in itertools.pairwise(cuts):
        part = raw[start:end]
        tokens.append(told(decoder.decode(part), part.decode("utf-8", "replace")))
    found, rest = pieces(tokens, text)
    assert ("".join(piece.text for piece in found), rest) == (text, "")
    whole = [(one, token) for one, token in zip(found, tokens, strict=True) if "\ufffd" not in token["token"]]
    assert all(one.text == token["token"] for one, token in whole)


def test_every_number_equals_the_traces() -> None:
    trace = traced(WORDS, num_samples=2)
    data = data_of(trace)
    near = {"rel_tol": 1e-8, "abs_tol": 1e-8}
    for index, sample in enumerate(trace.samples):
        for token, step in zip(sample.tokens, steps_of(data, index), strict=True):
            assert data["names"][step["name"]] == [token["id"], shown_in_cell(token["token"]), 0]
            for name in ("logprob", "entropy", "final_prob", "u"):
                assert math.isclose(step[name], token[name], **near)
            assert step["logprob"] + step["total"] == pytest.approx(token["logit"], abs=1e-6)
            assert step["rank"] == token["rank"]
            for i, one in enumerate(token["candidates"]):
                name, logprob, final, drop = step["candidates"][4 * i : 4 * i + 4]
                assert data["names"][name][0] == one["id"]
                assert logprob + step["total"] == pytest.approx(one["logit"], abs=1e-6)
                assert math.isclose(logprob, one["logprob"], **near)
                assert math.isclose(final, one["final_prob"], **near)
                assert (None if drop < 0 else data["stages"][drop]) == one["dropped_by"]
            for i, one in enumerate(token["stages"]):
                name, *numbers = step["stages"][6 * i : 6 * i + 6]
                assert data["stages"][name] == one["name"]
                assert numbers == pytest.approx([value for key, value in one.items() if key != "name"], rel=1e-8)
            assert len(step["candidates"]) == 4 * len(token["candidates"])
            assert len(step["stages"]) == 6 * len(token["stages"])


def test_the_made_up_traces_draw_what_they_say() -> None:
    """The double's own arithmetic: the random number falls into the chosen token's share."""
    for token in traced(WORDS * 10).samples[0].tokens:
        before = math.fsum(one["final_prob"] for one in token["candidates"][: token["stages"][-1]["rank"] - 1])
        assert before <= token["u"] <= before + token["final_prob"]
        assert token["stages"][-1]["prob"] == token["final_prob"] > 0
    step = Step(1, {0: 1.0, 1: 3.0, 2: 2.0}, 0.5, {0: "a", 1: "b", 2: "c"})
    assert ranked(step.rows[0][1]) == [1, 2, 0]


def test_margins_are_in_words_and_a_missing_one_is_not_computed() -> None:
    trace = traced(WORDS)
    data = data_of(trace)
    step = steps_of(data)[0]
    words = [data["words"][word] for word in step["margins"]]
    rank = trace.samples[0].tokens[0]["rank"]
    assert words[:1] + words[2:4] == ["any", *[f"{rank} or more" if rank > 1 else "any"] * 2]
    assert words[1].startswith("above 0.")
    assert words[1].endswith(" to 1.5")
    assert words[6:] == ["not computed"] * 2
    rows = dict(zip(*[iter(re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", unchanged(page_of(trace))))] * 2, strict=True))
    assert rows == {
        "temperature": "0.7 to below 0.9",
        "top_k": "5 or more",
        "top_p": "above 0.5 to 0.96",
        "min_p": "not computed",
    }


def unchanged(page: str) -> str:
    return page.partition('<table class="unchanged">')[2].partition("</table>")[0]


def test_without_stages_and_numbers_there_is_still_a_page() -> None:
    trace = traced(WORDS)
    kept = ("index", "id", "text", "token", "rank", "special")
    tokens = [{name: token[name] for name in kept} for token in trace.samples[0].tokens]
    page = page_of(replace(trace, samples=[replace(trace.samples[0], tokens=tokens)]))
    step = steps_of(json.loads(Reader(page).texts("script", id="data")[0]))[0]
    assert (step["logprob"], step["candidates"], step["stages"], step["margins"]) == (None, [], [], [])


HOSTILE = [
    "</script><script>alert(1)</script>",
    "</ScRiPt >",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe src=javascript:alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "<!--",
    "-->",
    "<!-- <script>",
    "<![CDATA[",
    "]]>",
    "<?php echo 1 ?>",
    "<!doctype html>",
    "</style><style>*{display:none}</style>",
    "</title><script>alert(1)</script>",
    "</textarea>",
    "</bdi></article></main>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "<link rel=stylesheet href=http://evil.example/x.css>",
    "<form action=http://evil.example><input name=q>",
    "<object data=http://evil.example>",
    "<body onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<math><mtext></mtext></math>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    "`onmouseover=alert(1)",
    "&lt;b&gt;",
    "&amp;amp;",
    "&#60;script&#62;",
    "&#x0;",
    "&nbsp;",
    "\\u003cscript\\u003e",
    "\\x3cscript\\x3e",
    '{"a":1}',
    '"}]};alert(1);//',
    "${alert(1)}",
    "$title $$ ${data}",
    "{{7*7}}",
    "url(javascript:alert(1))",
    "expression(alert(1))",
    "@import 'http://evil.example';",
    "\u2028alert(1)\u2029",
    "a\x00b",
    "\x1b[2J\x1b]0;pwn\x07",
    "\u009b2J",
    "back\rspace\b\x7f",
    "\ufeffbom",
    "left\u202eright\u202c",
    "\u2066isolated\u2069",
    "\u200b\u200d\u2060",
    "\U000e0041\U000e0042",
    "مرحبا بالعالم",
    "👩‍👩‍👧 é̂ 中文",
    "\ufffe\uffff\U0010ffff",
    "[/INST] arr[i] = b[j] [bold]",
    " \t leading and trailing \t ",
]


def test_nothing_in_a_trace_becomes_markup() -> None:
    """SEC-1, MKP-2, MKP-3, R23"""

    def page_with(text: str) -> str:
        trace = traced(HOSTILE, prompt=text, model=text)
        made = {name: {"value": text, "origin": text} for name in trace.header.settings}
        return page_of(replace(trace, header=replace(trace.header, settings=made, preset=text)))

    plain = [tag for tag, _, _ in Reader(page_with("ok")).elements]
    for text in ["".join(HOSTILE), "\n".join(reversed(HOSTILE))]:
        page = page_with(text)
        read = Reader(page)
        assert [tag for tag, _, _ in read.elements] == plain
        assert read.texts("div", class_="prompt") == [shown(text)]
        assert read.texts("div", class_="text") == [shown("".join(HOSTILE))]
        assert read.texts("title") == [shown_in_cell(f"minigen report: {text}")]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", page)


def test_the_data_holds_nothing_that_ends_it_and_reads_back_whole() -> None:
    """R23"""
    page = page_of(traced(HOSTILE))
    blob = Reader(page).texts("script", id="data")[0]
    assert not re.search("[<>&\u2028\u2029]", blob)
    data = json.loads(blob)
    assert "".join(step["piece"] for step in steps_of(data)).replace(
        r"\u200b\u200d\u2060", "\u200b\u200d\u2060"
    ).replace(r"\U000e0041\U000e0042", "\U000e0041\U000e0042") == shown("".join(HOSTILE))
    assert [data["names"][step["name"]][1] for step in steps_of(data)] == [shown_in_cell(text) for text in HOSTILE]


def test_halves_of_characters_are_shown_and_the_page_is_utf_8() -> None:
    """R23"""
    page = page_of(traced(["a\ud800b"], prompt="\udfff", model="\ud8ff"))
    page.encode("utf-8")
    assert Reader(page).texts("div", class_="prompt") == [r"\udfff"]


def test_the_policy_names_just_the_pages_own_style_and_script() -> None:
    read = Reader(page_of(traced(WORDS)))
    policy = next(has["content"] for tag, has, _ in read.elements if has.get("http-equiv") == "Content-Security-Policy")

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    rules = dict(rule.split(" ", 1) for rule in str(policy).split("; "))
    assert rules == {
        "default-src": "'none'",
        "style-src": hashed(read.texts("style")[0]),
        "script-src": hashed(read.texts("script")[1]),
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_the_page_leads_nowhere_and_makes_no_markup_of_text() -> None:
    page = page_of(traced(WORDS))
    read = Reader(page)
    assert not [has for _, has, _ in read.elements if {"href", "src", "style", "action"} & set(has)]
    assert not [name for _, has, _ in read.elements for name in has if name.startswith("on")]
    outside = re.sub(r"http://www\.w3\.org/(1999/xhtml|2000/svg)", "", page)  # names, not addresses
    for word in ("http:", "https:", "//cdn", "url(", "@import", "innerHTML", "outerHTML", "insertAdjacent"):
        assert word not in outside
    for word in ("document.write", "eval(", "Function(", "fetch(", "XMLHttpRequest", "import("):
        assert word not in page


def luminance(color: str) -> float:
    """WCAG 2's relative luminance of #rrggbb."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_read_well_and_differ_in_lightness(scheme: str) -> None:
    """People who see no hues, or only some, can tell the levels by their lightness."""
    blocks = re.findall(r":root \{(.*?)\}", (PAGE / "report.css").read_text("utf-8"), re.S)
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[["light", "dark"].index(scheme)]))
    levels = [colors["paper"], *(colors[f"s{i}"] for i in range(1, 5))]
    assert all(contrast(colors["ink"], level) >= 4.5 for level in levels)
    assert all(contrast(colors["quiet"], colors[ground]) >= 4.5 for ground in ("paper", "wash"))
    assert all(contrast(colors[mark], colors["paper"]) >= 3 for mark in ("accent", "warm"))
    away = [contrast(level, colors["paper"]) for level in levels]
    assert all(after > 1.15 * before for before, after in itertools.pairwise(away))


def test_without_scripts_text_settings_and_counts_are_there() -> None:
    trace = traced(WORDS, num_samples=2)
    read = Reader(page_of(trace))
    assert read.texts("div", class_="text") == [sample.text for sample in trace.samples]
    cells = "".join(read.texts("table", class_="settings"))
    for name, (_, origin) in SETTINGS.items():
        assert name in cells
        assert origin in cells or origin == "built-in"
    assert "7=-1.5" in cells
    assert "'\\\\n\\\\n', '<b>'" in cells or r"'\n\n', '<b>'" in cells
    assert read.texts("summary") == ["2 settings nobody touched"]
    facts = read.texts("dl", class_="facts")[1]
    assert facts.startswith("Endedat max_new_tokensTokens3 in the prompt, 10 newSeed8First token0.25 s")


def test_a_trace_that_ends_early_says_so() -> None:
    trace = traced(WORDS)
    cut = replace(trace, is_complete=False, samples=[replace(trace.samples[0], document=None)])
    read = Reader(page_of(cut))
    assert read.texts("p", class_="notice")[0].startswith("This trace ends early")
    assert read.texts("div", class_="text") == ["".join(WORDS)]
    assert "not known: the trace ends early" in read.texts("dl", class_="facts")[0]
    empty = page_of(replace(trace, is_complete=False, samples=[]))
    assert Reader(empty).texts("p", class_="lead") == ["0 tokens, preset smollm2"]


def test_an_error_of_the_run_is_told() -> None:
    trace = traced(WORDS)
    trace.samples[0].document = (trace.samples[0].document or {}) | {"finish_reason": "error", "error": "No <room>."}
    read = Reader(page_of(trace))
    assert "No <room>." in read.texts("p", class_="notice")
    assert "with an error" in read.texts("dl", class_="facts")[0]


def test_five_thousand_tokens_stay_small() -> None:
    trace = traced([f" word{i % 700}" for i in range(5000)])
    size = len(page_of(trace).encode())
    assert size < 4_500_000
    assert size / 5000 < 900


# The command.


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    return write_trace(traced(WORDS), tmp_path / "run.trace")


def test_the_command_writes_a_page(trace_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = trace_path.with_name("report.html")
    assert main(["report", str(trace_path), "-o", str(page)]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err == f"minigen: Wrote {page} ({bytes_text(page.stat().st_size)}).\n"
    assert Reader(page.read_text("utf-8")).texts("div", class_="text") == ["".join(WORDS)]


def test_quiet_says_nothing(trace_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(trace_path), "-q", "-o", str(trace_path.with_name("report.html"))]) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("encoding", ["", "latin-1", "ascii"])
def test_a_pipe_gets_the_page_in_utf_8(tmp_path: Path, encoding: str) -> None:
    path = write_trace(traced(["é", "中", "👩"]), tmp_path / "run.trace")
    command = [sys.executable, "-m", "minigen.cli", "report", "-"]
    environ = os.environ | ({"PYTHONIOENCODING": encoding} if encoding else {})
    done = subprocess.run(command, input=path.read_bytes(), capture_output=True, env=environ, check=True)
    assert Reader(done.stdout.decode("utf-8")).texts("div", class_="text") == ["é中👩"]
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "what", "example"),
    [([], "page", "run.html"), (["-o", "-"], "page", "run.html"), (["--svg"], "picture", "run.svg")],
)
def test_a_terminal_is_not_filled(trace_path: Path, arguments: list[str], what: str, example: str) -> None:
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "minigen.cli", "report", str(trace_path), *arguments]
    done = subprocess.run(command, stdout=secondary, stderr=subprocess.PIPE, text=True, check=False)
    os.close(primary)
    os.close(secondary)
    assert done.returncode == 2
    assert done.stderr == (
        f"minigen: The {what} would fill the terminal: name a file for it, such as -o {example}, or lead it into a "
        "pipe.\n"
    )


def test_a_trace_is_never_written_over(trace_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = trace_path.read_bytes()
    link, other = trace_path.with_name("link"), trace_path.with_name("hard")
    link.symlink_to(trace_path)
    os.link(trace_path, other)
    for name in (trace_path, link, other, Path(os.path.relpath(trace_path))):
        assert main(["report", str(trace_path), "-o", str(name)]) == 2
        assert capfd.readouterr().err == (
            f"minigen: --output {str(name)!r} is the trace itself: give the page another name.\n"
        )
    command = [sys.executable, "-m", "minigen.cli", "report", "-", "-o", str(trace_path)]
    with trace_path.open() as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    assert (done.returncode, "is the trace itself" in done.stderr) == (2, True)
    assert trace_path.read_bytes() == before


def test_a_file_that_is_no_trace_leaves_the_page_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    page.write_text("before")
    (tmp_path / "bad").write_text("no trace\n")
    for name, wanted in (("bad", "is not a trace"), ("missing", "cannot be read: No such file")):
        assert main(["report", str(tmp_path / name), "-o", str(page)]) == 2
        err = capfd.readouterr().err
        assert wanted in err
        assert err.count("\n") == 1
    assert page.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "report.html"]


def test_a_page_that_cannot_be_written_is_told(trace_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(trace_path), "-o", str(trace_path.parent / "no" / "x.html")]) == 2
    assert "cannot be written: No such file or directory." in capfd.readouterr().err
    assert main(["report", str(trace_path), "-o", "/dev/full"]) == 1
    assert capfd.readouterr().err == "minigen: --output '/dev/full' could not be written: No space left on device.\n"


def test_a_trace_that_was_cut_off_is_told_and_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_trace(traced(WORDS), tmp_path / "run.trace", is_cut=True)
    page = tmp_path / "report.html"
    assert main(["report", str(path), "-q", "-o", str(page)]) == 0
    assert "ends early" in capfd.readouterr().err
    assert "This trace ends early" in page.read_text("utf-8")


def test_the_command_loads_neither_torch_nor_transformers(trace_path: Path) -> None:
    """MOD-14"""
    code = (
        "import sys\nfrom minigen.cli.app import main\n"
        f"assert main(['report', {str(trace_path)!r}, '-o', {str(trace_path.with_name('x.html'))!r}]) == 0\n"
        "print(sorted({'torch', 'transformers', 'huggingface_hub', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_parts_of_the_page_are_in_the_package() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["minigen.cli"]
    names = sorted(part.name for part in PAGE.iterdir())
    assert names == ["data.js", "details.js", "page.js", "plot.js", "report.css", "report.html", "text.js"]
    assert all(any(fnmatch(f"page/{name}", pattern) for pattern in patterns) for name in names)
