"""A trace as one web page that needs nothing else: no network, no style or script but its own, all text escaped."""

from __future__ import annotations

import base64
import hashlib
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import Final

from .coloring import SCALES
from .report_data import data_of, json_of, margin_words
from .report_sections import as_line, as_text, sample_section, settings_section
from .trace_file import Trace

_SCRIPTS: Final = ("data.js", "text.js", "plot.js", "details.js", "page.js")  # in this order they are one script
_MEASURES: Final = {
    "surprisal": "surprisal",
    "prob": "probability",
    "rank": "rank",
    "entropy": "entropy",
    "none": "none",
}


def page_of(trace: Trace) -> str:
    """Give the whole page."""
    header = trace.header
    style, script = _asset("report.css"), "".join(_asset(name) for name in _SCRIPTS)
    margins = margin_words(trace)
    return Template(_asset("report.html")).substitute(
        policy=_policy(style, script),
        title=as_line(f"minigen report: {header.model}"),
        style=style,
        script=script,
        model=as_line(header.model),
        lead=_lead(trace),
        notices="\n".join(_notice(text) for text in _notices(trace)),
        prompt=as_text(header.prompt),
        chooser=_chooser(len(trace.samples)),
        measures=_measures(),
        legends=_legends(),
        samples="\n".join(sample_section(sample, len(trace.samples), margins) for sample in trace.samples),
        settings=settings_section(header.settings),
        version=as_line(version("minigen-cli")),
        data=json_of(data_of(trace)),
    )


def _asset(name: str) -> str:
    return (files(__package__) / "page" / name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """Forbid everything but this style and this script, known by their hashes, and making elements from text."""
    rules = {
        "default-src": "'none'",
        "style-src": _hash(style),
        "script-src": _hash(script),
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _chooser(num_samples: int) -> str:
    return "".join(f'<option value="{i}">{i + 1} of {num_samples}</option>' for i in range(num_samples))


def _measures() -> str:
    """Write the choice of what colours the text."""
    return "".join(
        f'<label><input type="radio" name="measure" value="{value}" autocomplete="off"{" checked" * (i == 0)}>'
        f"<span>{name}</span></label>"
        for i, (value, name) in enumerate(_MEASURES.items())
    )


def _legends() -> str:
    """Write what the colours mean under each measure."""
    legends = []
    for name, scale in SCALES.items():
        items = "".join(f'<li class="level-{level}">{as_line(text)}</li>' for level, text in enumerate(scale.labels))
        legends.append(
            f'<div class="legend" data-measure="{name}" hidden><span id="legend-{name}">{as_line(scale.title)}</span>'
            f'<ol aria-labelledby="legend-{name}">{items}</ol></div>'
        )
    return "\n".join(legends)


def _lead(trace: Trace) -> str:
    num_samples, num_tokens = len(trace.samples), sum(len(sample.tokens) for sample in trace.samples)
    counts = f"{num_samples} texts, " if num_samples > 1 else ""
    return f"{counts}{num_tokens:,} token{'s' * (num_tokens != 1)}, preset <bdi>{as_line(trace.header.preset)}</bdi>"


def _notices(trace: Trace) -> list[str]:
    documents = [sample.document for sample in trace.samples if sample.document is not None]
    errors = [str(document["error"]) for document in documents if "error" in document]
    early = "This trace ends early: its run was stopped before its end. What there is of it is shown."
    return [*([] if trace.is_complete else [early]), *errors]


def _notice(text: str) -> str:
    return f'<p class="notice" role="note">{as_line(text)}</p>'
