"""`minigen tokens`: how a prompt is cut into tokens. Only the tokenizer is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..generation.errors import UsageError
from . import options as o
from .answering import Answer, answering
from .option_groups import MODEL, WORLD, takes
from .option_kinds import switch
from .terminal import is_terminal

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
    json: o.JsonDocument = False,
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
    with answering(context.params) as answer:
        _execute(context.params, answer)


def _execute(params: Mapping[str, Any], answer: Answer) -> None:
    from .contradictions import refuse_lone_system
    from .text_input import read_text, reader_for
    from .token_lists import count, tokens_document, tokens_table

    no_stdin, does_chat = params["no_stdin"], params["chat"] or params["chat_template"] is not None
    refuse_lone_system(params["system"], is_chat=does_chat)
    reader = reader_for(answer.notes, no_stdin=no_stdin)
    template, system = _template(reader, params), _system(reader, params)
    text = read_text(reader, params["text"], params["file"], no_stdin=no_stdin, command="tokens", noun="text")
    tokenizer, name = _loaded(answer)
    if does_chat and template is None and not getattr(tokenizer, "chat_template", None):
        raise UsageError(
            f"The model {name} has no chat template: give one with --chat-template FILE, or leave --chat out."
        )
    found = _cut(tokenizer, text, does_chat, system, template)
    answer.notes.clear()
    console = answer.console()
    if console is None:
        mode = "chat" if does_chat else "raw"
        answer.write_document(tokens_document(found, name=name, text=text, mode=mode, system=system))
    else:
        width = console.width if is_terminal(answer.stream) else None
        console.print(tokens_table(found, count(found, text), width), soft_wrap=True)


def _loaded(answer: Answer) -> tuple[Any, str]:
    """Give the tokenizer, and what its model is called."""
    from ..generation.tokenizer import load_tokenizer
    from .opening import meant_model
    from .progress import TerminalProgress
    from .reporting import LoadProgress

    _, settings = meant_model(answer.given, answer.notes)
    answer.notes.status("loading the tokenizer ...")
    progress = LoadProgress(TerminalProgress(answer.given.quiet), answer.notes)
    return load_tokenizer(settings, offline=answer.given.offline, progress=progress)


def _cut(tokenizer: Any, text: str, does_chat: bool, system: str | None, template: str | None) -> list[PromptToken]:
    from ..generation.origins import chat_tokens, raw_tokens
    from .encoding import turns

    return chat_tokens(tokenizer, turns(text, system), template) if does_chat else raw_tokens(tokenizer, text)


def _system(reader: Reader, params: Mapping[str, Any]) -> str | None:
    return None if params["system"] is None else reader.argument(params["system"], "--system")


def _template(reader: Reader, params: Mapping[str, Any]) -> str | None:
    from .text_input import read_file_of

    path = params["chat_template"]
    return None if path is None else read_file_of(reader, "--chat-template", path, no_stdin=params["no_stdin"])
