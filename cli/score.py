"""`minigen score`: how likely a text is, how two continuations compare, and whether one is likely enough."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..generation.ranges import Range
from . import options as o
from .answering import Answer, answering
from .option_groups import MODEL, WORLD, takes
from .option_kinds import number, switch

if TYPE_CHECKING:
    from ..generation.model import Model
    from .score_plan import ScorePlan

_INPUT, _MODE = "Input", "What to tell"


def _option(flag: str, about: str, panel: str = _MODE) -> Any:
    return typer.Option(flag, metavar="TEXT", rich_help_panel=panel, help=about)


def _number(flag: str, limits: Range, about: str) -> Any:
    return typer.Option(flag, metavar="NUMBER", parser=number(flag, limits), rich_help_panel=_MODE, help=about)


Text = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT", show_default=False,
        help="What to score; with --options or --expect, what they continue. - is standard input. Files and standard "
        "input follow it after a blank line, or stand where it says {input}.",
    ),
]  # fmt: skip
Before = Annotated[str | None, _option("--context", "What stands before TEXT; it is read and not scored.", _INPUT)]
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
    _option("--expect", "Exit 0 if this continuation of TEXT has at least the probability --min-prob, else 1."),
]
MinProb = Annotated[
    float | None, _number("--min-prob", Range(float, 0, 1), "The least probability that passes (between 0 and 1).")
]
TopSurprising = Annotated[
    int | None,
    _number(
        "--top-surprising",
        Range(int, 1),
        "List only this many tokens, the most surprising first, with line and column.",
    ),
]
Window = Annotated[
    int | None,
    _number("--window", Range(int, 2), "Read at most this many tokens at once (default: as many as the model can)."),
]
Stride = Annotated[
    int | None,
    _number("--stride", Range(int, 1), "How far the window moves over a text that is longer (default: half of it)."),
]


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
    json: o.JsonDocument = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.VerboseModel = False,
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

    Example: minigen score "France's capital is" --expect " Paris" --min-prob 0.5
    """
    from .score_plan import score_plan

    with answering(context.params) as answer:
        plan = score_plan(context.params, answer.notes)
        code = _told(plan, _opened(answer), answer)
    raise typer.Exit(code)


def _opened(answer: Answer) -> Model:
    from .opening import opened_model

    began = time.perf_counter()
    model = opened_model(answer.given, answer.notes)
    if answer.given.verbose:
        seconds = time.perf_counter() - began
        answer.notes.plain(f"{model.name} on {model.device} in {model.dtype} · loaded in {seconds:.1f} s")
    return model


def _told(plan: ScorePlan, model: Model, answer: Answer) -> int:
    """Score, and write what was asked for; give the exit code."""
    if plan.options or plan.expected is not None:
        from .score_continuations import tell_continuations

        return tell_continuations(plan, model, answer)
    from .score_text import tell_text

    tell_text(plan, model, answer)
    return 0
