"""`minigen diff`: how two prompts change the probability of the same text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..generation.ranges import Range
from . import options as o
from .notes import Notes
from .option_groups import MODEL, WORLD, takes
from .option_kinds import number, switch
from .text_input import Json, Verbose

_TEXTS, _INPUT, _OUTPUT = "The two prompts and the text", "Input", "Output"


def _text(*flags: str, about: str) -> Any:
    return typer.Option(*flags, metavar="TEXT", rich_help_panel=_TEXTS, show_default=False, help=about)


def _file(flag: str, about: str) -> Any:
    return typer.Option(flag, metavar="PATH", rich_help_panel=_TEXTS, show_default=False, help=about)


Top = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="NUMBER", parser=number("--top", Range(int, 1, 1000)), rich_help_panel=_OUTPUT,
        help="How many gains and losses to list at the end (default: 5).",
    ),
]  # fmt: skip


@takes(WORLD, after="no_stdin")
@takes(MODEL, after="system")
def diff(
    context: typer.Context,
    a: Annotated[str | None, _text("-a", about="Prompt A.")] = None,
    b: Annotated[str | None, _text("-b", about="Prompt B.")] = None,
    text: Annotated[str | None, _text("--text", about="What follows either prompt.")] = None,
    a_file: Annotated[Path | None, _file("--a-file", "A file in place of -a; - is standard input.")] = None,
    b_file: Annotated[Path | None, _file("--b-file", "A file in place of -b; - is standard input.")] = None,
    text_file: Annotated[Path | None, _file("--text-file", "A file in place of --text; - is standard input.")] = None,
    chat: Annotated[bool, switch("--chat", "Each prompt is a user's turn, and the text its answer.", _INPUT)] = False,
    system: o.System = None,
    top: Top = None,
    json: Json = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: Verbose = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    no_stdin: o.NoStdin = False,
    **groups: Any,  # of the decorators
) -> None:
    """Tell what a change of the prompt changes about a text that follows it.

    For each token: its log-probability after either prompt, the change, and the KL divergence in bits.

    Then the tokens that gained most, and those that lost most.

    Example: minigen diff -a "Translate:" -b "Translate to French:" --text " Bonjour"

    Example: minigen diff --a-file old.txt --b-file new.txt --text-file answer.txt --chat
    """
    notes = Notes(sys.stderr, is_quiet=quiet)
    notes.status("starting ...")
    try:
        _execute(context.params, notes)
    finally:
        notes.clear()


def _execute(params: dict[str, Any], notes: Notes) -> None:
    from .destination import Destination
    from .diff_plan import diff_plan
    from .terminal import console_for
    from .text_input import meant_model, opened_model

    with Destination(params["output"]) as destination:
        plan = diff_plan(params, notes)
        name, settings = meant_model(params, notes)
        from .diff_telling import tell_diff  # brings torch

        model = opened_model(name, settings, params, notes)
        console = None if params["json"] else console_for(destination.stream, params["color"])
        tell_diff(plan, model, notes, destination.stream, console, is_verbose=params["verbose"])
        destination.stream.flush()
        destination.keep()
