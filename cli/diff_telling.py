"""How `minigen diff` tells what it found: tokens as they come, then their sums, gains and losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..generation.comparing import Comparison, compare
from ..generation.passage import Passage, check_fits, check_ids, context_ids, read_after
from ..generation.pieces import cut
from .encoding import chat_ids
from .notes import Notes
from .token_names import TokenNames

if TYPE_CHECKING:
    from rich.console import Console

    from ..generation.model import Model
    from .answering import Answer
    from .diff_plan import DiffPlan


def tell_diff(plan: DiffPlan, model: Model, answer: Answer) -> None:
    """Compare, and write the tables or the document."""
    notes, console = answer.notes, answer.console()
    before_a, before_b = _before(plan.a, plan, model), _before(plan.b, plan, model)
    passage = read_after(model.tokenizer, before_a, plan.text)
    for before in (before_a, before_b):
        check_fits(len(before) + len(passage.ids), model.window)
        check_ids([*before, *passage.ids], model.vocab_size)
    if answer.given.verbose:
        notes.plain(f"{model.name} on {model.device} in {model.dtype}")
        notes.plain(f"{len(before_a)} tokens of A, {len(before_b)} of B, {len(passage.ids)} of the text")
    found = _compared(model, before_a, before_b, passage, notes, console)
    if console is None:
        from .diff_document import diff_document

        pieces = cut(model.tokenizer, plan.text, passage.ids)
        answer.write_document(diff_document(plan, model, (len(before_a), len(before_b)), found, pieces))
        return
    from .diff_tables import paid_lines, sum_lines
    from .score_tables import spaced

    names = TokenNames(model.tokenizer)
    paid = paid_lines(found, names, plan.top, console.width)
    console.print(spaced([], sum_lines(found, console.width), *paid), soft_wrap=True)


def _before(prompt: str, plan: DiffPlan, model: Model) -> tuple[int, ...]:
    if plan.is_chat:
        return chat_ids(model, prompt, plan.system)
    return context_ids(model.tokenizer, prompt)


def _compared(
    model: Model,
    before_a: tuple[int, ...],
    before_b: tuple[int, ...],
    passage: Passage,
    notes: Notes,
    console: Console | None,
) -> list[Comparison]:
    """Compare all tokens; where there is a console, print them as they come."""
    from .diff_tables import ComparisonTable

    table = ComparisonTable(len(passage.ids), TokenNames(model.tokenizer))
    found: list[Comparison] = []
    notes.status(f"comparing {len(passage.ids):,} tokens ...")
    for block in compare(model, before_a, before_b, passage.ids):
        found += block
        if console is not None:
            notes.clear()
            console.print(table.block(block, console.width), soft_wrap=True)
        notes.status(f"comparing: {len(found):,} of {len(passage.ids):,} tokens ...")
    notes.clear()
    return found
