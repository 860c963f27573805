"""`minigen tokens`: how a prompt is cut into tokens. Only the tokenizer is loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..generation.errors import UsageError
from . import options as o
from .notes import Notes
from .option_groups import MODEL, WORLD, takes
from .option_kinds import switch
from .text_input import Json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..generation.origins import PromptToken
    from .reading import Reader

_TOKENIZER = {name: MODEL[name] for name in ("preset", "model", "revision")}
Text = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT", show_default=False,
        help="What to cut; - is standard input. Files and standard input follow it after a blank line, or stand where "
        "it says {input}.",
    ),
]  # fmt: skip
Chat = Annotated[bool, switch("--chat", "Set it in the model's chat template, as one turn of a user.", "Input")]


@takes(WORLD, after="no_stdin")
@takes(_TOKENIZER, after="chat_template")
def tokens(
    context: typer.Context,
    text: Text = None,
    file: o.Files = None,
    chat: Chat = False,
    system: o.System = None,
    chat_template: o.ChatTemplate = None,
    json: Json = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    no_stdin: o.NoStdin = False,
    **groups: Any,  # of the decorators
) -> None:
    """Show how a prompt is cut into tokens: ids, pieces of the vocabulary, text, bytes, and special tokens.

    It is cut as minigen run --raw reads it; with --chat in the chat template, whose own tokens are marked.

    The model's weights are not loaded.

    Example: minigen tokens "Hello world"

    Example: minigen tokens "Hello" --chat --system "Be brief."
    """
    notes = Notes(sys.stderr, is_quiet=quiet)
    notes.status("starting ...")
    try:
        _execute(context.params, notes)
    finally:
        notes.clear()


def _execute(params: Mapping[str, Any], notes: Notes) -> None:
    from ..generation.tokenizer import load_tokenizer
    from .destination import Destination
    from .json_line import is_unicode, line_of
    from .progress import TerminalProgress
    from .reporting import LoadProgress
    from .terminal import console_for
    from .text_input import meant_model, read_text, reader_for
    from .token_lists import count, tokens_document, tokens_table

    with Destination(params["output"]) as destination:
        does_chat = params["chat"] or params["chat_template"] is not None
        if params["system"] is not None and not does_chat:
            raise UsageError("--system needs --chat, whose template has a place for it.")
        reader = reader_for(notes, no_stdin=params["no_stdin"])
        template, system = _template(reader, params), _system(reader, params)
        text = read_text(reader, params, "tokens")
        _, settings = meant_model(params, notes)
        notes.status("loading the tokenizer ...")
        progress = LoadProgress(TerminalProgress(params["quiet"]), notes)
        tokenizer, name = load_tokenizer(settings, offline=params["offline"], progress=progress)
        if does_chat and template is None and not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                f"The model {name} has no chat template: give one with --chat-template FILE, or leave --chat out."
            )
        found = _cut(tokenizer, text, does_chat, system, template)
        notes.clear()
        stream = destination.stream
        if params["json"]:
            mode = "chat" if does_chat else "raw"
            document = tokens_document(found, name=name, text=text, mode=mode, system=system)
            stream.write(line_of(document, is_ascii=not is_unicode(stream)) + "\n")
        else:
            console = console_for(stream, params["color"])
            width = console.width if destination.is_terminal else None
            console.print(tokens_table(found, count(found, text), width), soft_wrap=True)
        stream.flush()
        destination.keep()


def _cut(tokenizer: Any, text: str, does_chat: bool, system: str | None, template: str | None) -> list[PromptToken]:
    from ..generation.origins import chat_tokens, raw_tokens
    from .text_input import turns

    return chat_tokens(tokenizer, turns(text, system), template) if does_chat else raw_tokens(tokenizer, text)


def _system(reader: Reader, params: Mapping[str, Any]) -> str | None:
    return None if params["system"] is None else reader.argument(params["system"], "--system")


def _template(reader: Reader, params: Mapping[str, Any]) -> str | None:
    from .reading import names_stdin

    path = params["chat_template"]
    if path is None:
        return None
    if params["no_stdin"] and names_stdin(path):
        raise UsageError("--chat-template - reads standard input, and --no-stdin forbids it: give one of them.")
    return reader.file(path)
