"""A job: all that a run was asked to do, checked before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from .. import presets
from ..generation.errors import UsageError
from ..generation.sources import ModelSettings, parse_source
from .notes import Notes
from .reading import Reader, names_stdin, read_prompt, standard_input
from .terminal import ColorChoice

TOP = 10
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
    sampling: Mapping[str, Any]  # by the names of SamplingParams
    num_samples: int = 1
    inspect: bool = False
    top: int | None = None
    json: bool = False
    jsonl: bool = False
    color: ColorChoice = "auto"
    quiet: bool = False
    verbose: bool = False
    output: Path | None = None
    offline: bool = False
    no_stdin: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be generated, and with what."""

    preset: presets.Preset
    flags: Mapping[str, Any]  # for presets.resolve: sampling, device, dtype, mode, model
    model: ModelSettings
    prompt: str  # what the user gave, joined
    template: str | None  # the preset's text around it, with {input} in its place
    system: str | None
    is_system_flag: bool  # rather than the preset's
    chat_template: str | None
    truncate: Literal["head", "tail"] | None
    num_samples: int
    num_candidates: int  # 0: no inspection
    format: Format


def build_job(given: Flags, notes: Notes) -> Job:
    """Check everything that can be checked without the model. Raises UsageError and its kind."""
    check_contradictions(given)
    preset = presets.load(presets.DEFAULT if given.preset is None else given.preset)
    for text in preset.warnings:
        notes.warn(text)
    flags = _flags(given)
    stdin = None if given.no_stdin else standard_input()
    reader = Reader(stdin, note=notes.note)
    presets.resolve(preset, flags)  # says what is wrong with a setting
    for stop in given.sampling.get("stop") or ():
        reader.argument(stop, "--stop")  # says what is wrong with its bytes
    for stop in given.sampling.get("stop") or ():  # a preset's have their own warning
        if "\\n" in stop:
            notes.warn(
                f"warning: the stop string {stop!r} holds a backslash and an n, not a line break; "
                "in a shell $'\\n' is one."
            )
    system = given.system if given.system is not None else preset.prompt.system
    return Job(
        preset=preset,
        flags=flags,
        model=_model_settings(given, preset),
        system=reader.argument(system, "the system text") if system is not None else None,
        is_system_flag=given.system is not None,
        chat_template=_template(reader, given),
        prompt=read_prompt(
            reader,
            given.prompt,
            given.file or (),
            use_stdin=not given.no_stdin,
            is_stdin_terminal=stdin is not None and stdin.isatty(),
        ),
        template=preset.prompt.template,
        truncate=given.truncate,
        num_samples=given.num_samples,
        num_candidates=(given.top or TOP) if given.inspect else 0,
        format="json" if given.json else "jsonl" if given.jsonl else "text",
    )


def check_contradictions(given: Flags) -> None:
    """Refuse flags that cannot both be meant."""
    pairs = [
        (given.json, "--json", given.jsonl, "--jsonl"),
        (given.quiet, "--quiet", given.verbose, "--verbose"),
        (given.chat, "--chat", given.raw, "--raw"),
        (given.raw, "--raw", given.system is not None, "--system"),
        (given.raw, "--raw", given.chat_template is not None, "--chat-template"),
    ]
    for is_one, one, is_other, other in pairs:
        if is_one and is_other:
            raise UsageError(f"{one} and {other} contradict each other: give one of them.")
    if given.top is not None and not given.inspect:
        raise UsageError(f"--top {given.top} needs --inspect, whose tables it limits.")
    if given.revision is not None and given.model is None:
        raise UsageError(f"--revision {given.revision} needs --model with a hub id.")


def _flags(given: Flags) -> dict[str, Any]:
    does_chat = given.chat or given.chat_template is not None
    mode = "chat" if does_chat else "raw" if given.raw else None
    where = {"device": given.device, "dtype": given.dtype, "mode": mode, "model": given.model}
    return dict(given.sampling) | where


def _model_settings(given: Flags, preset: presets.Preset) -> ModelSettings:
    """Give the model section: the preset's, or that of --model, with the flags over it."""
    base = preset.model
    if given.model is not None:
        base = ModelSettings(sources=(parse_source(given.model, given.revision),))
    return replace(
        base,
        device=given.device or base.device,
        dtype=given.dtype or base.dtype,
        trust_remote_code=given.trust_remote_code,
    )


def _template(reader: Reader, given: Flags) -> str | None:
    if given.chat_template is None:
        return None
    if given.no_stdin and names_stdin(given.chat_template):
        raise UsageError("--chat-template - reads standard input, and --no-stdin forbids it: give one of them.")
    text = reader.file(given.chat_template)
    _check_syntax(text, given.chat_template)
    return text


def _check_syntax(template: str, path: Path) -> None:
    """Refuse what is no template at all; its tags are the model library's to know."""
    from jinja2 import Environment, TemplateSyntaxError

    try:
        Environment(autoescape=True).parse(template)  # parsed, never rendered here
    except TemplateSyntaxError as error:
        message = str(error.message).rstrip(".")
        if "unknown tag" not in message:
            where = f"{path}, line {error.lineno}"
            raise UsageError(f"--chat-template is not a valid template ({where}): {message}.") from None
