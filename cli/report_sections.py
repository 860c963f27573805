"""What a report shows of a trace besides its tokens: texts, how each sample went, and the settings, as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from ..generation.trace import KNOBS
from .escaping import shown, shown_in_cell
from .margin_words import MarginWords
from .setting_words import written
from .trace_file import TracedSample
from .traced_draws import interval_of

_BUILT_IN: Final = "built-in"
_ENDINGS: Final = {
    "length": "at max_new_tokens",
    "context": "where the model's window was full",
    "interrupted": "when it was interrupted",
    "error": "with an error",
}


def as_text(text: str) -> str:
    """Write text of any number of lines."""
    return escape(shown(text))


def as_line(text: object) -> str:
    """Write one line."""
    return escape(shown_in_cell(str(text)))


def sample_section(sample: TracedSample, num_samples: int, margins: MarginWords) -> str:
    """Write a text, how it went, and what would have changed it."""
    title = f'<h3 class="sample-title">Sample {sample.index + 1} of {num_samples}</h3>' if num_samples > 1 else ""
    facts = "".join(f"<div><dt>{name}</dt><dd>{as_line(value)}</dd></div>" for name, value in _facts(sample).items())
    text = as_text(sample.text)
    return (
        f'<article class="sample">{title}\n<div class="text" dir="auto" lang="">{text}</div>\n'
        f'<dl class="facts">{facts}</dl>\n{_unchanged(sample, margins)}</article>'
    )


def _unchanged(sample: TracedSample, margins: MarginWords) -> str:
    """Say within which numbers each setting, turned alone, leaves a text as it is."""
    found = (sample.document or {}).get("margins")
    if not found:
        return ""
    said = {knob: margins.say(knob, interval_of(found.get(knob))) for knob in KNOBS}
    rows = "".join(f'<tr><th scope="row">{knob}</th><td>{as_line(words)}</td></tr>' for knob, words in said.items())
    caption = "This text comes out unchanged, one setting turned at a time, at"
    return f'<table class="unchanged"><caption>{caption}</caption><tbody>{rows}</tbody></table>\n'


def _facts(sample: TracedSample) -> dict[str, str]:
    """Say how a sample went, in words."""
    document = sample.document
    if document is None:
        return {
            "Ended": "not known: the trace ends early",
            "Tokens": f"{len(sample.tokens):,}",
            "Seed": str(sample.seed),
        }
    usage, timing = document["usage"], document["timing"]
    facts = {
        "Ended": _ending(document),
        "Tokens": f"{usage['prompt_tokens']:,} in the prompt, {usage['completion_tokens']:,} new",
        "Seed": str(sample.seed),
        "First token": _measured(timing["first_token_seconds"], "s", 2),
        "Prefill": _measured(timing["prefill_tokens_per_second"], "tokens a second", 1),
        "Decode": _measured(timing["decode_tokens_per_second"], "tokens a second", 1),
        "Total time": _measured(timing["total_seconds"], "s", 2),
    }
    return {name: value for name, value in facts.items() if value}


def _ending(document: Mapping[str, Any]) -> str:
    reason, stop = document["finish_reason"], document["stop"]
    if reason == "stop":
        return f"at the stop string {stop!r}" if isinstance(stop, str) else "at the model's end token"
    return _ENDINGS.get(reason, str(reason))


def _measured(value: float | None, unit: str, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f} {unit}"


def settings_section(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Write the settings that somebody made, and after them, folded, the others."""
    made = {name: choice for name, choice in settings.items() if choice["origin"] != _BUILT_IN}
    others = {name: choice for name, choice in settings.items() if name not in made}
    folded = f"<summary>{len(others)} settings nobody touched</summary>"
    return (
        _settings_table("Settings made for this run", made)
        + f"\n<details>{folded}{_settings_table('Settings at their built-in values', others)}</details>"
    )


def _settings_table(caption: str, settings: Mapping[str, Mapping[str, Any]]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{_breakable(name)}</th><td><bdi>{as_line(written(choice["value"]))}</bdi></td>'
        f"<td><bdi>{as_line(choice['origin'])}</bdi></td></tr>"
        for name, choice in settings.items()
    )
    head = '<thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th></tr></thead>'
    return f'<table class="settings"><caption>{caption}</caption>{head}<tbody>\n{rows}\n</tbody></table>'


def _breakable(name: str) -> str:
    """Write a name that may break after its underscores."""
    return as_line(name).replace("_", "_<wbr>")
