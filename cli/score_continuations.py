"""Scoring what could follow a text: options by how likely they are, or one that is expected."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..generation.continuations import Continuation, continuations
from ..generation.passage import context_ids
from .encoding import chat_ids
from .escaping import shown_in_cell
from .score_plan import ScorePlan
from .tables import probability
from .token_names import TokenNames

if TYPE_CHECKING:
    from ..generation.model import Model
    from .answering import Answer


def tell_continuations(plan: ScorePlan, model: Model, answer: Answer) -> int:
    """Score the continuations of the text and write what they come to; give 1 where one is not as likely as wanted."""
    tokenizer = model.tokenizer
    before = chat_ids(model, plan.text, plan.system) if plan.is_chat else context_ids(tokenizer, plan.text)
    answer.notes.status("scoring ...")
    found = continuations(model, before, plan.options or (plan.expected or "",))
    answer.notes.clear()
    names, console = TokenNames(tokenizer), answer.console()
    code = int(plan.expected is not None and found[0].prob < plan.min_prob)
    if console is None:
        from .score_documents import continuation_document

        answer.write_document(continuation_document(plan, model, len(before), found, names.text))
    elif plan.options:
        from .score_tables import options_table

        console.print(options_table(found, console.width), soft_wrap=True)
    elif not answer.given.quiet:
        answer.stream.write(f"{verdict(found[0], plan.min_prob, names)}\n")
    return code


def verdict(one: Continuation, min_prob: float, names: TokenNames) -> str:
    """Say in one line whether a continuation is as likely as wanted, and where not, what was expected instead."""
    quoted = f'"{shown_in_cell(one.text)}"'
    if one.prob >= min_prob:
        return f"yes: {quoted} has probability {_exact(one.prob)}, at least {min_prob:g}"
    weakest = min(one.scores, key=lambda each: each.logprob or 0.0)
    instead = ""
    if weakest.expected_id is not None and weakest.expected_id != weakest.token_id:
        most = math.exp(weakest.expected_logprob or 0.0)
        instead = f"; expected {names.label(weakest.expected_id)} ({probability(most)})"
        if len(one.scores) > 1:
            instead += f" where {names.label(weakest.token_id)} stands"
    return f"no: {quoted} has probability {_exact(one.prob)}, below {min_prob:g}{instead}"


def _exact(prob: float) -> str:
    return f"{prob:.4g}"
