"""`minigen sweep`: every combination of some settings, side by side in one batch, and what each comes to."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from . import options as o
from .notes import Notes
from .option_groups import WORLD, WRITING_MODEL, takes
from .sweep_options import SWEPT, Prompts, Seeds, Show, TextLines

if TYPE_CHECKING:
    from ..generation.model import Model
    from .interrupts import Interrupts
    from .sweep_plan import SweepPlan
    from .sweep_texts import Combination


@takes(WORLD, after="no_stdin")
@takes(WRITING_MODEL, after="truncate")
@takes(SWEPT, after="truncate")
def sweep(
    context: typer.Context,
    prompt: Prompts = None,
    file: o.Files = None,
    system: o.System = None,
    chat: o.Chat = False,
    raw: o.Raw = False,
    chat_template: o.ChatTemplate = None,
    truncate: o.Truncate = None,
    seeds: Seeds = None,
    show: Show = False,
    jsonl: TextLines = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    no_stdin: o.NoStdin = False,
    **groups: Any,  # of the decorators
) -> None:
    """Compare settings: write a text with every combination of the listed values, and measure what comes of each.

    The same seeds serve every combination, so two texts are the same until a setting parts them.

    Example: minigen sweep "Write a haiku." --temperature 0.2,0.7,1.2 --seeds 4

    Example: minigen sweep "Once upon a time" --raw --min-p 0,0.1 --show
    """
    from .sweep_plan import sweep_plan

    notes = Notes(sys.stderr, is_quiet=quiet)
    notes.status("starting ...")
    try:
        raise typer.Exit(_execute(sweep_plan(context.params, notes), notes, context.obj))
    finally:
        notes.clear()


def _execute(plan: SweepPlan, notes: Notes, interrupts: Interrupts) -> int:
    """Do a sweep and give its exit code."""
    from .destination import Destination

    with Destination(plan.given.output) as destination:
        model, combinations = _loaded(plan, notes)
        from ..generation.engine import MAX_RUNNING, Engine
        from ..generation.sampler import choose_seed
        from .sweep_loop import Sweeping
        from .sweep_telling import live_view, reporter, say_how, tell_results
        from .sweep_texts import Board

        seed = combinations[0].settings.params.seed
        board = Board.of(combinations, plan.seeds_from(choose_seed() if seed is None else seed))
        engine = Engine(model, max_running=min(len(board.in_turn), MAX_RUNNING))
        say_how(plan, board, model, engine.one_at_a_time, notes)
        began = time.perf_counter()
        sweeping = Sweeping(
            engine, board, live_view(plan, destination), notes, interrupts, report=reporter(plan, board, destination)
        )
        code = sweeping.run()
        seconds = time.perf_counter() - began
        if any(text.is_there for text in board.in_turn):
            tell_results(plan, board, model, destination, seconds, notes)
        return code


def _loaded(plan: SweepPlan, notes: Notes) -> tuple[Model, list[Combination]]:
    """Load the model, and settle for each combination what depends on it."""
    from .. import presets
    from .encoding import encode
    from .loaded import load
    from .opening import settled
    from .sweep_texts import Combination

    job, combinations = plan.job, list[Combination]()
    first = load(plan.given, job, notes)
    prompts = {first.settings.params.max_new_tokens: first.prompt}  # a cut leaves room for the new tokens
    for index, values in enumerate(plan.combinations):
        resolved = presets.resolve(job.preset, plan.flags_of(values), first.model.sampling_defaults)
        settings, room = settled(resolved, first.model, first.settings.mode), resolved.params.max_new_tokens
        if room not in prompts:
            prompts[room] = encode(job, first.model, settings, notes)
        combinations.append(Combination(index=index, values=values, settings=settings, prompt=prompts[room]))
    return first.model, combinations
