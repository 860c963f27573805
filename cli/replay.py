"""`minigen replay`: a traced run drawn again under other settings, with the same random numbers and no model."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..generation.errors import ParameterError, UsageError
from ..generation.ranges import Range
from . import options as o
from .notes import Notes
from .option_groups import SAMPLING, hidden, sampling_settings, takes
from .option_kinds import number

if TYPE_CHECKING:
    from .replay_views import Replayed
    from .terminal import ColorChoice
    from .trace_file import Trace, TracedSample
    from .traced_settings import ReplaySettings

REFUSED = ("max_new_tokens", "stop", "ignore_eos", "end_token_ids", "bad_words", "dry_sequence_breakers")
File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="What minigen run --trace wrote; - is standard input.", show_default=False),
]
SampleIndex = Annotated[
    int,
    typer.Option(
        "--sample", metavar="NUMBER", parser=number("--sample", Range(int, 0)), help="Which text of the run, from 0.",
        show_default=True, rich_help_panel="Output",
    ),
]  # fmt: skip


@takes({**SAMPLING, **hidden(REFUSED)}, after="file")
def replay(
    context: typer.Context,
    file: File,
    sample: SampleIndex = 0,
    json: o.JsonDocument = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    **groups: Any,  # of the decorator
) -> None:
    """Draw a traced run again under other settings: the same random numbers, no model.

    Each token is drawn given the recorded text before it.

    Where the logits that the trace keeps do not settle a draw, it is not decided.

    Example: minigen replay run.trace --temperature 0.3
    """
    from ..presets.settings import check_flags

    notes = Notes(sys.stderr, is_quiet=quiet)
    flags = sampling_settings(context.params)
    check_flags(flags)
    _check_output(file, output)
    notes.status("reading the trace ...")
    try:
        _execute(file, sample, flags, output, notes, choice=None if json else color)
    finally:
        notes.clear()


def _execute(
    file: Path, index: int, flags: Mapping[str, Any], output: Path | None, notes: Notes, *, choice: ColorChoice | None
) -> None:
    """Do a replay. choice: when to colour the table; None for JSON in its place."""
    from .destination import Destination
    from .json_line import is_unicode, line_of
    from .replay_views import print_table, replay_document
    from .terminal import console_for
    from .trace_reading import read_trace
    from .traced_settings import replay_settings

    with Destination(output) as destination:
        trace = read_trace(file)
        for warning in trace.warnings:
            notes.warn(warning)
        settings = replay_settings(trace.header, flags)
        notes.status("drawing the tokens again ...")
        replayed = _replayed(str(file), trace, _sample(trace, index), settings)
        notes.clear()
        if choice is None:
            line = line_of(replay_document(replayed), is_ascii=not is_unicode(destination.stream))
            destination.stream.write(line + "\n")
        else:
            print_table(replayed, console_for(destination.stream, choice))
        destination.stream.flush()
        destination.keep()


def _sample(trace: Trace, index: int) -> TracedSample:
    count = len(trace.samples)
    if not count:
        raise UsageError(f"The trace {trace.name} ends before its first token: there is nothing to draw again.")
    if index >= count:
        wanted = f"a whole number between 0 and {count - 1}" if count > 1 else "0, the only one"
        raise ParameterError("--sample", index, wanted)
    return trace.samples[index]


def _replayed(file: str, trace: Trace, sample: TracedSample, settings: ReplaySettings) -> Replayed:
    """Draw the tokens of a sample again."""
    import torch

    from ..generation.replay import RecordedStep, Recording, replay as redraw
    from ..generation.words import Words
    from .replay_views import Replayed

    header = trace.header
    recording = Recording(
        params=settings.recorded,
        seed=sample.seed,
        prompt_ids=header.prompt_ids,
        steps=[
            RecordedStep(token_id=token["id"], rank=token["rank"], leading=leading)
            for token, leading in zip(sample.tokens, sample.leading, strict=True)
        ],
        vocab_size=header.vocab_size,
        words=Words(
            end_token_ids=header.end_token_ids,
            bad_word_ids=header.bad_word_ids,
            breakers=header.dry_breaker_ids,
            newline_ids=header.newline_ids,
        ),
    )
    seed = settings.seed_of(sample)
    torch.set_num_threads(1)  # rows are short: more threads would only wait for each other
    redraws = list(redraw(recording, settings.params, seed))
    return Replayed(file=file, trace=trace, sample=sample, settings=settings, seed=seed, redraws=redraws)


def _check_output(file: Path, output: Path | None) -> None:
    """Refuse to write over the trace that is read."""
    if output is not None and os.path.realpath(file) == os.path.realpath(output):
        raise UsageError(f"--output {str(output)!r} is the trace itself: give another file.")
