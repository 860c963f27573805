"""What `minigen diff` is asked for, and how it is told: tokens as they come, then their sums, gains and losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from ..generation.comparing import Comparison, compare
from ..generation.errors import UsageError
from ..generation.passage import Passage, check_fits, check_ids, context_ids, read_after
from ..generation.pieces import cut
from ..generation.prompt import encode_chat
from .json_line import is_unicode, line_of
from .notes import Notes
from .reading import Reader, names_stdin
from .text_input import reader_for, refuse_together, turns
from .token_names import TokenNames

if TYPE_CHECKING:
    from rich.console import Console

    from ..generation.model import Model

TOP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPlan:
    """What is to be compared."""

    a: str
    b: str
    text: str
    is_chat: bool
    system: str | None
    top: int


def diff_plan(params: Mapping[str, Any], notes: Notes) -> DiffPlan:
    """Check the options and read the texts. Raises UsageError and its kind."""
    refuse_together([(params["quiet"], "--quiet", params["verbose"], "--verbose")])
    if params["system"] is not None and not params["chat"]:
        raise UsageError("--system needs --chat, whose template has a place for it.")
    reader = reader_for(notes, no_stdin=params["no_stdin"])
    a, b, text = (_given(reader, params, name) for name in ("a", "b", "text"))
    if not text:
        raise UsageError("The text is empty: --text is what follows either prompt.")
    system = None if params["system"] is None else reader.argument(params["system"], "--system")
    return DiffPlan(a=a, b=b, text=text, is_chat=params["chat"], system=system, top=params["top"] or TOP)


def _given(reader: Reader, params: Mapping[str, Any], name: str) -> str:
    """Read one of the three texts, from its option or its file."""
    flag = "--text" if name == "text" else f"-{name}"
    typed, path = params[name], params[f"{name}_file"]
    if (typed is None) == (path is None):
        both = "are both given: give one of them" if path is not None else "are both missing: give one of them"
        raise UsageError(f"{flag} and --{name}-file {both}.")
    if path is None:
        return reader.argument(typed, flag)
    if params["no_stdin"] and names_stdin(path):
        raise UsageError(f"--{name}-file - reads standard input, and --no-stdin forbids it: give one of them.")
    return reader.file(path)


def tell_diff(
    plan: DiffPlan, model: Model, notes: Notes, stream: TextIO, console: Console | None, *, is_verbose: bool
) -> None:
    """Compare, and write the tables, or where there is no console the document."""
    before_a, before_b = _before(plan.a, plan, model), _before(plan.b, plan, model)
    passage = read_after(model.tokenizer, before_a, plan.text)
    for before in (before_a, before_b):
        check_fits(len(before) + len(passage.ids), model.window)
        check_ids([*before, *passage.ids], model.vocab_size)
    if is_verbose:
        notes.plain(f"{model.name} on {model.device} in {model.dtype}")
        notes.plain(f"{len(before_a)} tokens of A, {len(before_b)} of B, {len(passage.ids)} of the text")
    found = _compared(model, before_a, before_b, passage, notes, console)
    if console is None:
        from .diff_document import diff_document

        pieces = cut(model.tokenizer, plan.text, passage.ids)
        document = diff_document(plan, model, (len(before_a), len(before_b)), found, pieces)
        stream.write(line_of(document, is_ascii=not is_unicode(stream)) + "\n")
        return
    from .diff_tables import paid_lines, sum_lines
    from .score_tables import spaced

    names = TokenNames(model.tokenizer)
    paid = paid_lines(found, names, plan.top, console.width)
    console.print(spaced([], sum_lines(found, console.width), *paid), soft_wrap=True)


def _before(prompt: str, plan: DiffPlan, model: Model) -> tuple[int, ...]:
    if plan.is_chat:
        return encode_chat(model.tokenizer, turns(prompt, plan.system)).ids
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
