"""Scoring a whole text: how it is read is said, its tokens are shown as they come, and their sum at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..generation.errors import ParameterError
from ..generation.passage import Passage, context_ids, read_after, read_alone
from ..generation.pieces import Lines
from ..generation.scoring import Reading, Score, read, score_text
from ..presets.spelling import flag_of
from .encoding import chat_ids
from .notes import Notes
from .score_plan import ScorePlan
from .token_names import TokenNames

if TYPE_CHECKING:
    from rich.console import Console

    from ..generation.model import Model
    from .answering import Answer


def passage_of(plan: ScorePlan, model: Model) -> Passage:
    """Encode the text, and what stands before it."""
    if plan.is_chat:
        before = chat_ids(model, plan.context or "", plan.system)
        return read_after(model.tokenizer, before, plan.text)
    if plan.context is None:
        return read_alone(model.tokenizer, plan.text)
    return read_after(model.tokenizer, context_ids(model.tokenizer, plan.context), plan.text)


def tell_text(plan: ScorePlan, model: Model, answer: Answer) -> None:
    """Score a text and write its table or its document."""
    notes, console, is_verbose = answer.notes, answer.console(), answer.given.verbose
    reading = _read(plan, model)
    _say_how(reading, notes, is_verbose=is_verbose)
    names = TokenNames(model.tokenizer)
    began = time.perf_counter()
    scores = _scored(plan, model, reading, notes, names, console)
    if is_verbose:
        _say_speed(reading, time.perf_counter() - began, notes)
    surprising = most_surprising(scores, plan.num_surprising) if plan.num_surprising else None
    if console is None:
        from .score_documents import text_document

        answer.write_document(text_document(plan, model, reading, scores, surprising, names.text))
        return
    from .score_tables import spaced, summary_lines, surprising_table

    summary = summary_lines(reading.summary(scores), len(scores), console.width)
    if surprising is None:
        console.print(spaced([], summary), soft_wrap=True)
    else:
        lines = Lines(plan.text)
        table = surprising_table(surprising, scores, reading.pieces, lines, names, console.width)
        console.print(spaced([table], summary), soft_wrap=True)


def _read(plan: ScorePlan, model: Model) -> Reading:
    """Lay the windows; an error names the flag as it was typed."""
    try:
        return read(model, passage_of(plan, model), window=plan.window, stride=plan.stride)
    except ParameterError as error:
        if error.name not in ("window", "stride"):
            raise
        raise ParameterError(flag_of(error.name), error.value, error.wanted) from None


def _scored(
    plan: ScorePlan, model: Model, reading: Reading, notes: Notes, names: TokenNames, console: Console | None
) -> list[Score]:
    """Score all tokens; where a table of all of them is wanted, print it as they come."""
    from .score_tables import TokenTable

    scores: list[Score] = []
    table = TokenTable(len(reading.pieces), model.vocab_size, names)
    is_shown = console is not None and plan.num_surprising is None
    notes.status(f"scoring {len(reading.pieces):,} tokens ...")
    for block in score_text(model, reading):
        scores += block
        if is_shown and console is not None:
            notes.clear()
            console.print(table.block(block, console.width), soft_wrap=True)
        notes.status(f"scoring: {len(scores):,} of {len(reading.pieces):,} tokens ...")
    notes.clear()
    return scores


def most_surprising(scores: Sequence[Score], count: int) -> list[int]:
    """Give the places of the most surprising tokens, the earlier one first among equals."""
    known = [(one.surprisal, place) for place, one in enumerate(scores) if one.surprisal is not None]
    return [place for _, place in sorted(known, key=lambda each: (-each[0], each[1]))[:count]]


def _say_how(reading: Reading, notes: Notes, *, is_verbose: bool) -> None:
    num_before, num_own = len(reading.passage.before), len(reading.passage.ids)
    if is_verbose:
        window = "no window" if reading.window is None else f"window {reading.window}, stride {reading.stride}"
        notes.plain(f"{num_before} context + {num_own} text tokens · {window}")
    if len(reading.passes) > 1:
        assert reading.window is not None
        assert reading.stride is not None
        notes.note(
            f"the {num_before + num_own} tokens are more than the window of {reading.window}: "
            f"they are read in {len(reading.passes)} windows, stride {reading.stride}, "
            f"each token with at least {reading.window - reading.stride} before it."
        )


def _say_speed(reading: Reading, seconds: float, notes: Notes) -> None:
    num_read = sum(each.end - each.begin for each in reading.passes)
    notes.plain(f"{num_read} tokens read in {seconds:.2f} s · {num_read / max(seconds, 1e-9):.1f} tok/s")
