"""`minigen batch`: the requests of a file, many at a time, a record for each."""

from __future__ import annotations

import sys
from typing import Any

import typer

from . import batch_options as b, options as o
from .notes import Notes
from .option_groups import SAMPLING, WORLD, WRITING_MODEL, sampling_settings, takes

Command = b.RayCommand


@takes(WORLD, after="overwrite")
@takes(WRITING_MODEL, after="truncate")
@takes(SAMPLING, after="truncate")
def batch(
    context: typer.Context,
    source: b.Source,
    lines: b.Lines = False,
    system: o.System = None,
    chat: o.Chat = False,
    raw: o.Raw = False,
    chat_template: o.ChatTemplate = None,
    truncate: o.Truncate = None,
    max_running: b.MaxRunning = None,
    kv_memory: b.KvMemory = None,
    ray: b.Ray = None,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    ordered: b.Ordered = False,
    resume: b.Resume = False,
    overwrite: b.Overwrite = False,
    **groups: Any,  # of the decorators
) -> None:
    """Generate for every line of a file, many at a time, and write a JSON line for each.

    A line's own setting beats a flag, a flag the preset. A bad line becomes a record with its error; the rest goes on.

    Example: minigen batch requests.jsonl -o texts.jsonl

    Example: minigen batch requests.jsonl -o texts.jsonl --resume

    Example: minigen batch questions.txt --lines --system "Answer in one word." | jq -r .text

    Example: minigen batch requests.jsonl -o texts.jsonl --ray
    """
    from .batch_plan import batch_flags
    from .batch_running import run_batch

    notes = Notes(sys.stderr, is_quiet=quiet)
    notes.status("starting ...")
    try:
        given = batch_flags(context.params, sampling_settings(context.params))
        raise typer.Exit(run_batch(given, notes, context.obj))
    finally:
        notes.clear()
