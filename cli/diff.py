"""`minigen diff`: how two prompts change the probability of the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..generation.ranges import Range
from . import options as o
from .answering import answering
from .option_groups import MODEL, WORLD, takes
from .option_kinds import number, switch

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
    json: o.JsonDocument = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.VerboseModel = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    no_stdin: o.NoStdin = False,
    **groups: Any,  # of the decorators
) -> None:
    """Tell what a change of the prompt changes about a text that follows it.

    For each token: its log-probability after either prompt, the change, and the KL divergence in bits.

    Then the tokens that gained most, and those that lost most.

    Example: minigen diff -a "Say hi." -b "Say hi in French." --text " Bonjour"

    Example: minigen diff --a-file old.txt --b-file new.txt --text " Yes" --chat
    """
    from .diff_plan import diff_plan
    from .opening import opened_model

    with answering(context.params) as answer:
        plan = diff_plan(context.params, answer.notes)
        model = opened_model(answer.given, answer.notes)
        from .diff_telling import tell_diff  # brings torch

        tell_diff(plan, model, answer)
