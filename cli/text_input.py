"""What the commands that read a text have in common: the text they are given, the model that is meant, the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from ..generation.errors import UsageError
from .notes import Notes
from .opening import model_settings, open_model
from .option_kinds import switch
from .reading import Reader, read_prompt, standard_input

if TYPE_CHECKING:
    from ..generation.model import Model
    from ..generation.sources import ModelSettings

Json = Annotated[bool, switch("--json", "Print one JSON document.", "Output")]
Verbose = Annotated[bool, switch("-v --verbose", "Show which model reads how many tokens.", "Output")]


def reader_for(notes: Notes, *, no_stdin: bool) -> Reader:
    """Give a reader of arguments, files and, unless that is forbidden, standard input."""
    return Reader(None if no_stdin else standard_input(), note=notes.note)


def read_text(reader: Reader, params: Mapping[str, Any], command: str) -> str:
    """Read TEXT as `minigen run` reads a prompt: the argument, then files, then standard input.

    params: a command's `text`, `file` and `no_stdin`.
    """
    stdin = None if params["no_stdin"] else standard_input()
    return read_prompt(
        reader,
        params["text"],
        params["file"] or (),
        use_stdin=not params["no_stdin"],
        is_stdin_terminal=stdin is not None and stdin.isatty(),
        command=command,
        noun="text",
    )


def meant_model(params: Mapping[str, Any], notes: Notes) -> tuple[str, ModelSettings]:
    """Give the model that the options mean, with what to call it while it loads; say a preset's warnings."""
    from .. import presets

    presets.check_flags({name: params.get(name) for name in ("device", "dtype")})
    preset = presets.load(presets.DEFAULT if params["preset"] is None else params["preset"])
    for text in preset.warnings:
        notes.warn(text)
    names = ("model", "revision", "device", "dtype", "trust_remote_code")
    settings = model_settings(preset, **{name: params[name] for name in names if name in params})
    return params["model"] or preset.name, settings


def opened_model(name: str, settings: ModelSettings, params: Mapping[str, Any], notes: Notes) -> Model:
    """Load a model as the options say."""
    return open_model(
        name, settings, notes, offline=params["offline"], threads=params["threads"], is_quiet=params["quiet"]
    )


def turns(text: str, system: str | None) -> list[dict[str, str]]:
    """Give one turn of a conversation, as a chat template takes it."""
    before = [] if system is None else [{"role": "system", "content": system}]
    return [*before, {"role": "user", "content": text}]


def chat_ids(model: Model, text: str, system: str | None) -> tuple[int, ...]:
    """Encode one turn of a conversation in the model's template. Raises UsageError where the model has none."""
    from ..generation.prompt import encode_chat

    if not model.has_chat_template:
        flags = "--chat" if system is None else "--chat and --system"
        raise UsageError(f"The model {model.name} has no chat template: leave {flags} out.")
    return encode_chat(model.tokenizer, turns(text, system)).ids


def refuse_together(pairs: list[tuple[bool, str, bool, str]]) -> None:
    """Raise UsageError for two options that are both given and cannot both be meant."""
    for is_one, one, is_other, other in pairs:
        if is_one and is_other:
            raise UsageError(f"{one} and {other} contradict each other: give one of them.")
