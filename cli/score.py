"""`minigen score`: how likely a text is, how two continuations compare, and whether one is likely enough."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..generation.ranges import Range
from . import options as o
from .notes import Notes
from .option_groups import MODEL, WORLD, takes
from .option_kinds import number, switch
from .text_input import Json, Verbose

if TYPE_CHECKING:
    from ..generation.model import Model
    from .destination import Destination
    from .score_plan import ScorePlan

_INPUT, _MODE = "Input", "What to tell"
Text = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT", show_default=False,
        help="What to score; with --options or --expect, what they continue. - is standard input. Files and standard "
        "input follow it after a blank line, or stand where it says {input}.",
    ),
]  # fmt: skip
Before = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="TEXT", rich_help_panel=_INPUT,
        help="What stands before TEXT; it is read and not scored.",
    ),
]  # fmt: skip
Chat = Annotated[bool, switch("--chat", "The context is a user's turn, and what is scored its answer.", _INPUT)]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--options", metavar="TEXT,TEXT", rich_help_panel=_MODE, show_default=False,
        help="Rank these continuations of TEXT. Spaces count; \\, is a comma, \\\\ a backslash. Repeatable.",
    ),
]  # fmt: skip
Expect = Annotated[
    str | None,
    typer.Option(
        "--expect", metavar="TEXT", rich_help_panel=_MODE,
        help="Exit 0 if this continuation of TEXT has the probability --min-prob at least, else 1.",
    ),
]  # fmt: skip
MinProb = Annotated[
    float | None,
    typer.Option(
        "--min-prob", metavar="NUMBER", parser=number("--min-prob", Range(float, 0, 1)), rich_help_panel=_MODE,
        help="The least probability that passes (0 to 1).",
    ),
]  # fmt: skip
TopSurprising = Annotated[
    int | None,
    typer.Option(
        "--top-surprising", metavar="NUMBER", parser=number("--top-surprising", Range(int, 1)), rich_help_panel=_MODE,
        help="List only this many tokens, the most surprising first, with line and column.",
    ),
]  # fmt: skip
Window = Annotated[
    int | None,
    typer.Option(
        "--window", metavar="NUMBER", parser=number("--window", Range(int, 2)), rich_help_panel=_MODE,
        help="Read at most this many tokens at once (default: as many as the model can).",
    ),
]  # fmt: skip
Stride = Annotated[
    int | None,
    typer.Option(
        "--stride", metavar="NUMBER", parser=number("--stride", Range(int, 1)), rich_help_panel=_MODE,
        help="How far the window moves over a text that is longer (default: half of it).",
    ),
]  # fmt: skip


@takes(WORLD, after="no_stdin")
@takes(MODEL, after="system")
def score(
    context: typer.Context,
    text: Text = None,
    file: o.Files = None,
    before: Before = None,
    chat: Chat = False,
    system: o.System = None,
    options: Options = None,
    expect: Expect = None,
    min_prob: MinProb = None,
    top_surprising: TopSurprising = None,
    window: Window = None,
    stride: Stride = None,
    json: Json = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: Verbose = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    no_stdin: o.NoStdin = False,
    **groups: Any,  # of the decorators
) -> None:
    """Tell how likely a model finds a text, token by token: log-probability, rank, surprisal, and what it expected.

    Then perplexity and bits per byte. A text longer than the model's window is read in windows that overlap.

    Example: minigen score "The capital of France is Paris."

    Example: minigen score -f essay.txt --top-surprising 20

    Example: minigen score "The capital of France is" --options " Paris, Lyon"

    Example: minigen score "The capital of France is" --expect " Paris" --min-prob 0.5
    """
    notes = Notes(sys.stderr, is_quiet=quiet)
    notes.status("starting ...")
    try:
        raise typer.Exit(_execute(context.params, notes))
    finally:
        notes.clear()


def _execute(params: dict[str, Any], notes: Notes) -> int:
    from .destination import Destination
    from .score_plan import score_plan
    from .text_input import meant_model, opened_model

    with Destination(params["output"]) as destination:
        plan = score_plan(params, notes)
        name, settings = meant_model(params, notes)
        began = time.perf_counter()
        model = opened_model(name, settings, params, notes)
        if params["verbose"]:
            seconds = time.perf_counter() - began
            notes.plain(f"{model.name} on {model.device} in {model.dtype} · loaded in {seconds:.1f} s")
        code = _told(plan, model, params, notes, destination)
        destination.stream.flush()
        destination.keep()
        return code


def _told(plan: ScorePlan, model: Model, params: dict[str, Any], notes: Notes, destination: Destination) -> int:
    """Score, and write what was asked for; give the exit code."""
    from .terminal import console_for

    console = None if params["json"] else console_for(destination.stream, params["color"])
    if plan.options or plan.expected is not None:
        from .score_continuations import tell_continuations

        return tell_continuations(plan, model, notes, destination.stream, console, is_quiet=params["quiet"])
    from .score_text import tell_text

    tell_text(plan, model, notes, destination.stream, console, is_verbose=params["verbose"])
    return 0
