"""What is told of a sweep: how it is set, its texts as they end, and what its combinations have come to."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from ..presets import Choice
from .notes import Notes
from .reporting import settings_text
from .samples import Run
from .setting_words import written
from .sweep_documents import combination_record, text_record
from .sweep_live import HiddenView, LiveTable, speed, speed_text
from .sweep_results import print_results, print_texts
from .sweep_texts import Board, SweptText, summary_of
from .terminal import console_for, is_terminal, may_redraw
from .token_names import TokenNames

if TYPE_CHECKING:
    from ..generation.model import Model
    from .destination import Destination
    from .sweep_loop import SweepView
    from .sweep_plan import SweepPlan


def say_how(plan: SweepPlan, board: Board, model: Model, one_at_a_time: str | None, notes: Notes) -> None:
    """Show every setting with its origin where that is wanted, and say what is done otherwise than was asked.

    one_at_a_time: why the texts cannot be written together; None where they can.
    """
    if plan.given.verbose:
        choices = board.combinations[0].settings.choices()
        listed = {**plan.axes, **({"seed": plan.named_seeds} if plan.named_seeds else {})}
        choices |= {
            name: Choice(", ".join(map(written, values)), choices[name].origin) for name, values in listed.items()
        }
        run = Run(
            model=model.name,
            preset=plan.job.preset.name,
            prompt=plan.job.prompt,
            settings=choices,
            device=model.device,
            is_compiled=model.package is not None,
        )
        notes.plain(settings_text(run, board.seeds[0]))
    if any(len(texts) < len(board.seeds) for texts in board.texts):
        notes.note("temperature 0 takes the likeliest token whatever the seed: such a text is written once.")
    if one_at_a_time is not None and len(board.in_turn) > 1:
        notes.note(one_at_a_time)


def live_view(plan: SweepPlan, destination: Destination) -> SweepView:
    """Give the live table where standard error is a terminal that no lines of JSON may come to meanwhile."""
    may_meet = plan.given.jsonl and not _is_regular(destination.stream)  # a pipe's reader may write to the terminal
    if plan.given.quiet or may_meet or not may_redraw(sys.stderr):
        return HiddenView()
    return LiveTable(console_for(sys.stderr, plan.given.color))


def _is_regular(stream: TextIO) -> bool:
    """Whether a stream leads to a file on a disk."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # no real stream
        return False


def reporter(plan: SweepPlan, board: Board, destination: Destination) -> Callable[[SweptText], None]:
    """Give what is done with a text that has ended."""

    def report(text: SweptText) -> None:
        destination.keep()  # from here on what there is of the texts is kept
        if plan.given.jsonl:
            _write(destination, text_record(text, board.combinations[text.combination]))

    return report


def tell_results(
    plan: SweepPlan, board: Board, model: Model, destination: Destination, seconds: float, notes: Notes
) -> None:
    """Write what each combination has come to, and how fast it went where that is wanted."""
    summaries = [summary_of(texts, board.texts[0], board.seeds) for texts in board.texts]
    names = TokenNames(model.tokenizer)
    if plan.given.jsonl:
        shared = {"model": model.name, "preset": plan.job.preset.name, "prompt": plan.job.prompt}
        for each, summary in zip(board.combinations, summaries, strict=True):
            _write(destination, combination_record(each, summary, board.seeds, **shared, text_of=names.text))
        _say_speed(plan, board, seconds, notes)
        return
    console = console_for(destination.stream, plan.given.color)
    decode = partial(model.tokenizer.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    if plan.shows_texts:
        print_texts(board, summaries, console, decode)
    is_one_screen = destination.is_terminal and is_terminal(sys.stderr) and not plan.given.quiet
    print_results(board, summaries, console, names, decode, speed=speed(board, seconds) if is_one_screen else ())
    if not is_one_screen:
        _say_speed(plan, board, seconds, notes)


def _say_speed(plan: SweepPlan, board: Board, seconds: float, notes: Notes) -> None:
    if plan.given.verbose or (is_terminal(sys.stderr) and not plan.given.quiet):
        notes.plain(speed_text(board, seconds))


def _write(destination: Destination, record: dict[str, Any]) -> None:
    from .json_line import is_unicode, line_of

    destination.stream.write(line_of(record, is_ascii=not is_unicode(destination.stream)) + "\n")
    destination.stream.flush()
