"""A job: all that a run was asked to do, checked before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .. import presets
from ..generation.errors import UsageError
from ..generation.params import TEXTS
from ..generation.sources import ModelSettings
from ..generation.trace import Inspection
from ..presets.spelling import flag_of
from .coloring import Measure
from .contradictions import refuse_together
from .notes import Notes
from .opening import meant_preset, model_settings
from .reading import Reader
from .terminal import ColorChoice
from .text_input import read_file_of, read_text, reader_for

TOP = 10
TRACE_WIDTH = 1024
_TEXT_NAMES = {"stop": "stop string", "bad_words": "bad word", "dry_sequence_breakers": "sequence breaker"}
Format = Literal["text", "json", "jsonl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The command line of `minigen run` as it was given."""

    prompt: str | None = None
    file: Sequence[Path] | None = None
    system: str | None = None
    chat: bool = False
    raw: bool = False
    chat_template: Path | None = None
    truncate: Literal["head", "tail"] | None = None
    preset: str | None = None
    model: str | None = None
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    compile: Literal["auto", "never", "require"] | None = None
    weights: Literal["exact", "int8"] | None = None
    sampling: Mapping[str, Any]  # by the names of SamplingParams
    num_samples: int = 1
    inspect: bool = False
    top: int | None = None
    stages: bool = False
    color_by: Measure | None = None
    json: bool = False
    jsonl: bool = False
    color: ColorChoice = "auto"
    quiet: bool = False
    verbose: bool = False
    output: Path | None = None
    trace: Path | None = None
    trace_width: int | None = None
    offline: bool = False
    no_stdin: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be generated, and with what."""

    preset: presets.Preset
    flags: Mapping[str, Any]  # for presets.resolve: sampling, device, dtype, weights, mode, model
    model: ModelSettings
    prompt: str  # what the user gave, joined
    template: str | None  # the preset's text around it, with {input} in its place
    system: str | None
    is_system_flag: bool  # rather than the preset's
    chat_template: str | None
    truncate: Literal["head", "tail"] | None
    num_samples: int
    format: Format
    asked: Inspection  # what is to be shown of each draw
    inspection: Inspection  # what each draw is to tell, with what a trace keeps of it
    is_inspected: bool  # tables or tokens are wanted


def build_job(given: Flags, notes: Notes, *, command: str = "run") -> Job:
    """Check what the flags lead to, as far as it takes no model. Raises UsageError and its kind.

    command: what an example in an error would be typed with.
    """
    preset = meant_preset(given.preset, notes)
    flags, asked = _flags(given), _asked(given)
    reader = reader_for(notes, no_stdin=given.no_stdin)
    presets.resolve(preset, flags)  # says what is wrong with a setting
    _check_texts(given, reader, notes)
    system = given.system if given.system is not None else preset.prompt.system
    return Job(
        preset=preset,
        flags=flags,
        model=model_settings(preset, given, compiled=given.compile, weights=given.weights),
        system=reader.argument(system, "the system text") if system is not None else None,
        is_system_flag=given.system is not None,
        chat_template=_template(reader, given),
        prompt=read_text(reader, given.prompt, given.file, no_stdin=given.no_stdin, command=command, noun="prompt"),
        template=preset.prompt.template,
        truncate=given.truncate,
        num_samples=given.num_samples,
        asked=asked,
        inspection=_inspection(given, asked),
        is_inspected=given.inspect or given.stages or (given.color_by is not None and (given.json or given.jsonl)),
        format="json" if given.json else "jsonl" if given.jsonl else "text",
    )


def _check_texts(given: Flags, reader: Reader, notes: Notes) -> None:
    """Say what is wrong with the bytes of texts among the settings, and warn of what was likely meant otherwise."""
    texts = [(name, text) for name in TEXTS for text in given.sampling.get(name) or ()]
    for name, text in texts:
        reader.argument(text, flag_of(name))
    for name, text in texts:  # a preset's have their own warning
        if "\\n" in text:
            notes.warn(
                f"warning: the {_TEXT_NAMES[name]} {text!r} holds a backslash and an n, not a line break; "
                "in a shell $'\\n' is one."
            )


def _asked(given: Flags) -> Inspection:
    """Give what is to be shown of each draw: of a plain text, nothing."""
    return Inspection(
        num_candidates=(given.top or TOP) if given.inspect or given.stages else 0,
        has_stages=given.stages,
        is_measured=given.json or given.jsonl or given.color_by is not None,
    )


def _inspection(given: Flags, asked: Inspection) -> Inspection:
    """Give what each draw is to tell: a trace wants what the tables would show."""
    if given.trace is None:
        return asked
    width = given.trace_width or TRACE_WIDTH
    return Inspection(num_candidates=given.top or TOP, has_stages=True, num_leading=width)


def check_contradictions(given: Flags) -> None:
    """Refuse flags that cannot both be meant."""
    refuse_together(
        [
            (given.json, "--json", given.jsonl, "--jsonl"),
            (given.quiet, "--quiet", given.verbose, "--verbose"),
            (given.chat, "--chat", given.raw, "--raw"),
            (given.raw, "--raw", given.system is not None, "--system"),
            (given.raw, "--raw", given.chat_template is not None, "--chat-template"),
        ]
    )
    if given.top is not None and not (given.inspect or given.stages) and given.trace is None:
        raise UsageError(f"--top {given.top} needs --inspect, whose tables it limits.")
    if given.trace_width is not None and given.trace is None:
        raise UsageError(f"--trace-width {given.trace_width} needs --trace, whose file it limits.")


def _flags(given: Flags) -> dict[str, Any]:
    does_chat = given.chat or given.chat_template is not None
    mode = "chat" if does_chat else "raw" if given.raw else None
    where = {"device": given.device, "dtype": given.dtype, "weights": given.weights, "mode": mode}
    return dict(given.sampling) | where | {"model": given.model}


def _template(reader: Reader, given: Flags) -> str | None:
    if given.chat_template is None:
        return None
    text = read_file_of(reader, "--chat-template", given.chat_template, no_stdin=given.no_stdin)
    _check_syntax(text, given.chat_template)
    return text


def _check_syntax(template: str, path: Path) -> None:
    """Refuse what is not a template at all; its tags are the model library's to know."""
    from jinja2 import Environment, TemplateSyntaxError

    try:
        Environment(autoescape=True).parse(template)  # parsed, never rendered here
    except TemplateSyntaxError as error:
        message = str(error.message).rstrip(".")
        if "unknown tag" not in message:
            where = f"{path}, line {error.lineno}"
            raise UsageError(f"--chat-template is not a valid template ({where}): {message}.") from None
