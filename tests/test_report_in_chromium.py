"""The report in a browser: what is shown and where it leads, by mouse and keyboard, at any size, without complaint."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import Chromium, Tab, find_chromium
from minigen.cli.coloring import SCALES, level_of
from minigen.cli.escaping import shown, shown_in_cell
from minigen.cli.report_page import page_of
from report_traces import BITS, traced
from test_report import HOSTILE, WORDS

LONG = [
    "As",
    " the",
    " antidisestablishmentarianism" * 3,
    "\n",
    "=" * 120,
    " repetition",
    "\n\n",
    " end",
    "<|end|>",
] * 4
TEXT = "document.querySelector('.sample:not([hidden]) .text')"
CHOSEN = "document.querySelector('[aria-selected=true]')?.id ?? null"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium here (Debian's package chromium)")
    with Chromium(program, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    for name, trace in {
        "ten": traced(WORDS),
        "long": traced(LONG, special=["<|end|>"]),
        "many": traced(WORDS, num_samples=3),
        "hostile": traced(HOSTILE, prompt="".join(HOSTILE), model="".join(HOSTILE)),
        "thousands": traced([f" word{i % 700}" if i % 40 else "\n" for i in range(5000)]),
    }.items():
        (folder / f"{name}.html").write_text(page_of(trace), "utf-8")
    return folder


def rows(tab: Tab, name: str) -> list[list[str]]:
    """The cells of a table in the details."""
    cells = (
        f"[...document.querySelectorAll('#details .{name} tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    found: list[list[str]] = tab.evaluate(cells)
    return found


def said_percent(text: str) -> float:
    """The number that a percentage means."""
    text = text.removesuffix(" %").removesuffix(" ✓")
    if "×" in text:
        digits, power = text.split(" × 10")
        text = f"{digits}e{power.translate(str.maketrans('⁻⁰¹²³⁴⁵⁶⁷⁸⁹', '-0123456789'))}"
    return float(text.removeprefix("> ")) / 100


def is_quiet(tab: Tab) -> bool:
    """Whether the page complained of nothing and asked for nothing but itself."""
    assert tab.said() == []
    assert len(tab.requests()) == 1
    return True


def test_hostile_texts_are_text(browser: Chromium, folder: Path) -> None:
    """SEC-1, MKP-2, MKP-3, R23"""
    with browser.open(f"file://{folder}/hostile.html") as tab:
        whole = "".join(HOSTILE)
        spelt = shown(whole).replace("\u200b\u200d\u2060", r"\u200b\u200d\u2060")  # nothing of these is seen
        spelt = spelt.replace("\U000e0041\U000e0042", r"\U000e0041\U000e0042")
        assert tab.evaluate(f"{TEXT}.textContent") == spelt
        assert tab.evaluate("document.querySelector('.prompt').textContent") == shown(whole)
        assert tab.evaluate("document.querySelector('h1').textContent") == shown_in_cell(whole)
        assert tab.evaluate("document.title") == shown_in_cell(f"minigen report: {whole}").strip()
        names = tab.evaluate(
            f"Array.from({{length: {len(HOSTILE)}}}, (_, i) => (select(i),"
            " ['h2 bdi', '.chosen bdi'].map(one => byId('details').querySelector(one).textContent)))"
        )
        assert names == [[shown_in_cell(text)] * 2 for text in HOSTILE]
        assert tab.evaluate("document.scripts.length") == 2
        assert tab.evaluate("document.querySelectorAll('img, iframe, a, form, object, base, link, math').length") == 0
        assert tab.evaluate(f"{TEXT}.querySelectorAll(':not(span)').length") == 0
        assert is_quiet(tab)


def test_the_policy_stops_what_a_mistake_would_let_in(browser: Chromium, folder: Path) -> None:
    """R23: even where markup came in, nothing would run or be fetched."""
    with browser.open(f"file://{folder}/ten.html") as tab:
        refused = tab.evaluate(
            "(() => { try { document.body.innerHTML = '<img src=x>'; return 'made' } catch (e) { return e.name } })()"
        )
        assert refused == "TypeError"
        tab.evaluate(
            "document.body.append(Object.assign(document.createElement('img'), {src: 'http://127.0.0.1:9/x'}))"
        )
        tab.evaluate(
            "document.body.append(Object.assign(document.createElement('style'), {textContent: '*{color:red}'}))"
        )
        complaints = " ".join(tab.said())
        assert "Content Security Policy directive: \\\"default-src 'none'\\\"" in complaints
        assert "style-src" in complaints
        sent = [event["params"] for event in browser.events if event["method"] == "Network.loadingFailed"]
        assert sent[-1]["blockedReason"] == "csp"


def test_a_click_opens_a_token_with_the_traces_numbers(browser: Chromium, folder: Path) -> None:
    trace = traced(WORDS)
    with browser.open(f"file://{folder}/ten.html") as tab:
        for index in (2, 5, 9):
            token = trace.samples[0].tokens[index]
            x, y = tab.evaluate(
                f"(() => {{ const r = document.querySelector('#t0-{index} .ink').getClientRects()[0];"
                " return [r.left + r.width / 2, r.top + r.height / 2] })()"
            )
            tab.click(x, y)
            assert tab.evaluate(CHOSEN) == f"t0-{index}"
            check_details(tab, token)
        assert tab.evaluate("location.hash") == "#token=10"
        assert is_quiet(tab)


def check_details(tab: Tab, token: dict[str, Any]) -> None:
    """Hold what is shown against a token's record."""
    near = {"rel": 6e-3, "abs": 5e-5}  # three digits are shown
    measured = dict(
        tab.evaluate(
            "[...document.querySelectorAll('.measured div')].map(d => [...d.children].map(c => c.textContent))"
        )
    )
    assert said_percent(measured["probability"]) == pytest.approx(math.exp(token["logprob"]), **near)
    assert said_percent(measured["final"]) == pytest.approx(token["final_prob"], **near)
    assert measured["surprisal"] == f"{-token['logprob'] * BITS:.2f} bits"
    assert measured["entropy"] == f"{token['entropy']:.2f} bits"
    assert measured["rank"] == str(token["rank"])
    candidates = sorted(token["candidates"], key=lambda one: -one["logprob"])
    for row, one in zip(rows(tab, "candidates"), candidates, strict=True):
        assert row[1].removesuffix(" ✓") == shown_in_cell(one["text"])
        assert row[1].endswith(" ✓") == (one["id"] == token["id"])
        assert row[2] == str(one["id"])
        assert float(row[3].replace("−", "-")) == pytest.approx(one["logit"], abs=0.0051)
        assert said_percent(row[4]) == pytest.approx(math.exp(one["logprob"]), **near)
        if one["dropped_by"]:
            assert row[5] == f"dropped by {one['dropped_by']}"
        else:
            assert said_percent(row[5]) == pytest.approx(one["final_prob"], **near)
    for row, one in zip(rows(tab, "waterfall"), token["stages"], strict=True):
        assert row[:2] == [one["name"], str(one["tokens_left"])]
        assert (
            row[2] == "–"
            if one["mass_removed"] == 0
            else said_percent(row[2]) == pytest.approx(one["mass_removed"], **near)
        )
        assert row[3] == f"{one['entropy']:.2f}"
        assert said_percent(row[4]) == pytest.approx(one["prob"], **near)
        assert row[5] == str(one["rank"])
    assert [row[0] for row in rows(tab, "margins")] == ["temperature", "top_k", "top_p", "min_p"]
    assert [row[2:] for row in rows(tab, "margins")][3] == ["not computed", "not computed"]
    picture = tab.evaluate(
        "(() => { const t = document.querySelector('.taken'), p = document.querySelector('.draw path');"
        " return [+t.getAttribute('x'), +t.getAttribute('width'), parseFloat(p.getAttribute('d').slice(1)) + 12] })()"
    )
    before = math.fsum(one["final_prob"] for one in candidates[: token["stages"][-1]["rank"] - 1])
    assert picture == pytest.approx([1000 * before, 1000 * token["final_prob"], 1000 * token["u"]], abs=1e-3)


def test_bars_are_as_long_as_their_numbers(browser: Chromium, folder: Path) -> None:
    token = traced(WORDS).samples[0].tokens[0]
    with browser.open(f"file://{folder}/ten.html#token=1") as tab:
        widths = tab.evaluate("[...document.querySelectorAll('.share.raw span')].map(e => parseFloat(e.style.width))")
        wanted = sorted((100 * math.exp(one["logprob"]) for one in token["candidates"]), reverse=True)
        assert widths == pytest.approx(wanted, rel=1e-3, abs=1e-3)


def test_the_keyboard_does_it_all(browser: Chromium, folder: Path) -> None:
    with browser.open(f"file://{folder}/long.html", width=700) as tab:
        for _ in range(20):
            tab.press("Tab")
            if tab.evaluate("document.activeElement.getAttribute('role')") == "listbox":
                break
        assert tab.evaluate(f"document.activeElement === {TEXT}")
        assert tab.evaluate(CHOSEN) is None
        seen = []
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "ArrowLeft", "Home", "ArrowLeft"):
            tab.press(key)
            seen.append(tab.evaluate(CHOSEN))
        last = len(LONG) - 1
        assert seen == [f"t0-{i}" for i in (0, 1, 0, last, last, last - 1, 0, 0)]
        assert tab.evaluate(f"{TEXT}.getAttribute('aria-activedescendant')") == "t0-0"
        tops = []
        for _ in range(4):
            tops.append(tab.evaluate(f"scrollY + document.getElementById({CHOSEN}).getClientRects()[0].top"))
            tab.press("ArrowDown")
        assert tops == sorted(set(tops))  # line by line
        tab.press("ArrowUp", "Enter")
        assert tab.evaluate("document.activeElement.id") == "details-title"
        tab.press("Escape")
        assert tab.evaluate(f"[document.activeElement === {TEXT}, {CHOSEN}, location.hash]") == [True, None, ""]
        assert tab.evaluate("getComputedStyle(byId('details')).display") == "none"
        assert is_quiet(tab)


def test_the_plot_and_the_text_lead_to_each_other(browser: Chromium, folder: Path) -> None:
    with browser.open(f"file://{folder}/thousands.html") as tab:
        left, top, width, height = tab.evaluate(
            "(() => { const r = byId('plot').getBoundingClientRect(); return [r.left, r.top, r.width, r.height] })()"
        )
        tab.click(left + 30 + (width - 36) * 0.8, top + height / 2)
        chosen = int(tab.evaluate(CHOSEN).split("-")[1])
        assert abs(chosen - 4000) < 15
        box = f"document.getElementById('t0-{chosen}').getBoundingClientRect()"
        assert tab.evaluate(f"{box}.top >= byId('bar').getBoundingClientRect().bottom && {box}.bottom <= innerHeight")
        cursor = "+document.querySelector('.cursor').getAttribute('x1')"
        assert tab.evaluate(cursor) == pytest.approx(30 + (width - 36) * (chosen + 0.5) / 5000, abs=0.1)
        tab.press("ArrowLeft")
        assert tab.evaluate(CHOSEN) in (f"t0-{chosen - 1}", f"t0-{chosen}")  # the plot need not have the focus
        tab.evaluate("byId('plot').focus()")
        tab.press("End", "ArrowDown")
        assert tab.evaluate(
            "[byId('plot').getAttribute('aria-valuenow'), byId('plot').getAttribute('aria-valuemax')]"
        ) == [
            "4999",
            "5000",
        ]
        assert tab.evaluate(cursor) == pytest.approx(30 + (width - 36) * 4998.5 / 5000, abs=0.1)
        view = tab.evaluate("+document.querySelector('.in-view').getAttribute('x')")
        assert 30 + (width - 36) * 0.8 < view < 30 + (width - 36)
        assert is_quiet(tab)


def test_the_plot_is_to_scale(browser: Chromium, folder: Path) -> None:
    tokens = traced(WORDS).samples[0].tokens
    with browser.open(f"file://{folder}/ten.html") as tab:
        paths = tab.evaluate(
            "['surprisal', 'entropy'].map(c => document.querySelector(`.plot .${c}`).getAttribute('d'))"
        )
        labels = tab.evaluate(
            "[...document.querySelectorAll('.plot text')].map(t => [t.textContent, +t.getAttribute('y')])"
        )
        (_, floor), (unit, up) = labels[0], labels[1]
        scale = float(unit) / (floor - up)
        for path, mark, wanted in (
            (paths[0], "V", [-token["logprob"] * BITS for token in tokens]),
            (paths[1], " ", [token["entropy"] for token in tokens]),
        ):
            heights = [float(part.split(mark)[1]) for part in path[1:].replace("L", "M").split("M")]
            assert [(floor - 4 - height) * scale for height in heights] == pytest.approx(wanted, abs=0.1 * scale)


def test_colours_follow_the_measure_and_its_legend(browser: Chromium, folder: Path) -> None:
    tokens = traced(WORDS).samples[0].tokens
    values = {
        "surprisal": [-token["logprob"] * BITS for token in tokens],
        "prob": [math.exp(token["logprob"]) for token in tokens],
        "rank": [token["rank"] for token in tokens],
        "entropy": [token["entropy"] for token in tokens],
    }
    with browser.open(f"file://{folder}/ten.html") as tab:
        for measure in (*values, "none"):
            tab.evaluate(f"document.querySelector('[value={measure}]').click()")
            classes = tab.evaluate("[...document.querySelectorAll('.ink')].map(e => e.classList[1])")
            wanted = [level_of(value, measure) for value in values.get(measure, [])]
            assert classes == [f"level-{level}" for level in wanted or [0] * len(tokens)]
            legend = tab.evaluate("[...document.querySelectorAll('.legend:not([hidden]) li')].map(e => e.textContent)")
            assert legend == list(SCALES[measure].labels if measure in SCALES else [])


@pytest.mark.parametrize(
    ("address", "chosen"),
    [
        ("#token=3", "t0-2"),
        ("#token=9999", "t0-9"),
        ("#token=0", "t0-0"),
        ("#token=1e1", None),
        ("#token=-1", None),
        ("#token=%3Cimg%3E&sample=2", None),
        ("#sample=2&token=4", "t1-3"),
        ("#sample=99", None),
        ("#%", None),
    ],
)
def test_an_address_may_name_a_token(browser: Chromium, folder: Path, address: str, chosen: str | None) -> None:
    with browser.open(f"file://{folder}/many.html{address}") as tab:
        assert tab.evaluate(CHOSEN) == chosen
        assert is_quiet(tab)


def test_samples_are_chosen_between(browser: Chromium, folder: Path) -> None:
    with browser.open(f"file://{folder}/many.html#token=2") as tab:
        visible = "[...document.querySelectorAll('.sample')].map(e => e.getClientRects().length > 0)"
        assert tab.evaluate(visible) == [True, False, False]
        tab.evaluate("byId('sample').value = '2'; byId('sample').dispatchEvent(new Event('change'))")
        assert tab.evaluate(visible) == [False, False, True]
        assert tab.evaluate(f"[location.hash, {CHOSEN}]") == ["#sample=3", None]
        tab.evaluate("location.hash = '#sample=2&token=10'")
        tab.evaluate("new Promise((done) => setTimeout(done, 50))")
        assert tab.evaluate(f"[...{visible}, {CHOSEN}]") == [False, True, False, "t1-9"]
        check_details(tab, traced(WORDS, num_samples=3).samples[1].tokens[9])
        assert is_quiet(tab)


def test_five_thousand_tokens_load_and_move_fast(browser: Chromium, folder: Path) -> None:
    began = time.monotonic()
    with browser.open(f"file://{folder}/thousands.html#token=4500") as tab:
        assert time.monotonic() - began < 6  # about 1 s where nothing else runs
        assert tab.evaluate(CHOSEN) == "t0-4499"
        assert tab.evaluate("document.querySelectorAll('[role=option]').length") == 5000
        columns = tab.evaluate("document.querySelector('.surprisal').getAttribute('d').split('M').length - 1")
        assert columns <= 1000
        assert "highest, mean of" in tab.evaluate("byId('grain').textContent")
        took = tab.evaluate(
            "(() => { const t = performance.now(); for (let i = 0; i < 20; i++) select(200 * i);"
            " document.body.offsetHeight; return performance.now() - t })()"
        )
        assert took / 20 < 150  # ms; about 10 where nothing else runs
        assert is_quiet(tab)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_nothing_is_wider_than_the_window(browser: Chromium, folder: Path, width: int, scheme: str) -> None:
    with browser.open(f"file://{folder}/long.html#token=3", width=width, height=740, scheme=scheme) as tab:
        for index in (2, 4, len(LONG) - 1):
            tab.evaluate(f"select({index})")
            assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
            assert tab.evaluate("byId('details').scrollWidth <= byId('details').clientWidth")
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(253, 252, 250)", "dark": "rgb(22, 24, 28)"}[scheme]
        assert is_quiet(tab)


def test_without_scripts_the_text_and_the_settings_are_seen(browser: Chromium, folder: Path) -> None:
    with browser.open("about:blank#") as tab:
        tab.call("Emulation.setScriptExecutionDisabled", value=True)
        tab.go(f"file://{folder}/many.html")
        seen = tab.evaluate("document.body.innerText")
        assert seen.count("Hello, wide world!\n\nBye now.") == 3
        assert "need JavaScript" in seen
        assert "flag --temperature" in seen
        assert tab.evaluate("document.getElementById('bar').getClientRects().length") == 0


def test_a_cut_trace_has_its_notice_and_no_tokens_do_no_harm(browser: Chromium, tmp_path: Path) -> None:
    trace = traced(WORDS)
    sample = replace(trace.samples[0], document=None)
    bare = replace(sample, tokens=[], leading=[])
    for name, samples in {"cut": [sample], "bare": [bare], "none": []}.items():
        page = tmp_path / f"{name}.html"
        page.write_text(page_of(replace(trace, is_complete=False, samples=samples)), "utf-8")
        with browser.open(f"file://{page}#token=2") as tab:
            assert "ends early" in tab.evaluate("document.querySelector('.notice').textContent")
            assert tab.evaluate(CHOSEN) == ("t0-1" if name == "cut" else None)
            tab.click(400, 400)
            assert is_quiet(tab)


def test_a_greedy_token_had_no_random_number(browser: Chromium, tmp_path: Path) -> None:
    trace = traced(WORDS)
    trace.samples[0].tokens[0] |= {"u": None, "final_prob": 1.0}
    trace.samples[0].tokens[1] |= {"logprob": -1e-9, "final_prob": 3e-11, "entropy": 1e-5}
    (tmp_path / "page.html").write_text(page_of(trace), "utf-8")
    with browser.open(f"file://{tmp_path}/page.html#token=1") as tab:
        assert tab.evaluate("document.querySelector('.draw p').textContent").startswith("Greedy: ")
        tab.evaluate("select(1)")
        shown_numbers = tab.evaluate("[...document.querySelectorAll('.measured dd')].map(e => e.textContent)")
        assert shown_numbers[:4] == ["> 99.99 %", "< 0.01 bits", "3.0 × 10⁻⁹ %", "< 0.01 bits"]
