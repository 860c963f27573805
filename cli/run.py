"""`minigen run`: flags in, settings merged, the engine stepped, a view fed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from . import options as o
from .notes import Notes
from .option_groups import SAMPLING, WORLD, WRITING_MODEL, sampling_settings, takes

if TYPE_CHECKING:
    from ..generation.model import Model
    from ..generation.words import Words
    from .destination import Destination
    from .generating import Plan
    from .interrupts import Interrupts
    from .job import Flags, Job
    from .loaded import Loaded
    from .many_texts import ManyTexts
    from .samples import Run
    from .trace_writing import TraceView
    from .views import View

MOST_TOGETHER = 16  # samples that run at once; the others wait


@takes(WORLD, after="no_stdin")
@takes(WRITING_MODEL, after="truncate")
@takes(SAMPLING, after="truncate")
def run(
    context: typer.Context,
    prompt: o.PromptText = None,
    file: o.Files = None,
    system: o.System = None,
    chat: o.Chat = False,
    raw: o.Raw = False,
    chat_template: o.ChatTemplate = None,
    truncate: o.Truncate = None,
    num_samples: o.NumSamples = None,
    inspect: o.Inspect = False,
    top: o.Top = None,
    stages: o.Stages = False,
    color_by: o.ColorBy = None,
    json: o.Json = False,
    jsonl: o.JsonLines = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    trace: o.TraceFile = None,
    trace_width: o.TraceWidth = None,
    version: o.Version = False,
    no_stdin: o.NoStdin = False,
    **groups: Any,  # of the decorators
) -> None:
    """Generate text from a prompt.

    Example: minigen run "Explain KV cache." --temperature 0.5

    Example: cat notes.txt | minigen run "Summarise in three lines:" --preset precise
    """
    notes = Notes(sys.stderr, is_quiet=quiet)
    notes.status("starting ...")  # before anything that takes its time
    try:
        raise typer.Exit(execute(_given(context.params), notes, context.obj))
    finally:
        notes.clear()


def _given(params: dict[str, Any]) -> Flags:
    """Give the parameters of a command as flags."""
    from .job import Flags

    named = {name: value for name, value in params.items() if name in Flags.__dataclass_fields__}
    named["num_samples"] = params["num_samples"] or 1
    return Flags(**named, sampling=sampling_settings(params))


def execute(given: Flags, notes: Notes, interrupts: Interrupts) -> int:
    """Do a run and give its exit code. Everything that needs no model is checked before one is loaded."""
    from .destination import Destination
    from .job import build_job, check_contradictions
    from .trace_writing import trace_destination

    check_contradictions(given)
    with trace_destination(given.trace, given.output) as trace, Destination(given.output) as destination:
        return _generate(given, build_job(given, notes), destination, trace, notes, interrupts)


def _generate(
    given: Flags, job: Job, destination: Destination, trace: Destination | None, notes: Notes, interrupts: Interrupts
) -> int:
    from .loaded import load

    loaded = load(given, job, notes)
    from ..generation.engine import Engine
    from .generating import Generation
    from .reporting import Report, graphs_note

    params, shared = loaded.settings.params, loaded.run_facts(job)
    inspected = params if job.is_inspected and job.format == "text" else None
    report = Report(shared, notes, is_verbose=given.verbose, is_quiet=given.quiet, inspected=inspected)
    engine = Engine(loaded.model, max_running=min(job.num_samples, MOST_TOGETHER))
    if engine.one_at_a_time is not None and job.num_samples > 1:
        notes.note(engine.one_at_a_time)
    overview = _overview(given, job, destination) if engine.max_running > 1 else None
    view: View = overview or _view(given, job, shared, loaded.model, destination)
    tracer = None if trace is None else _tracer(view, trace, shared, loaded, engine.words_of(params), job)

    def start(seed: int) -> None:
        destination.keep()  # from here on what there is of the text is kept
        report.start(seed)
        if tracer is not None:
            tracer.start(seed)

    plan = _plan(given, job, loaded)
    generation = Generation(
        engine, plan, tracer or view, notes, interrupts, overview=overview, start=start, report=report.end
    )
    code = generation.run()
    report.total(generation.stats)
    if given.verbose and engine.graph_failure is not None:
        notes.note(graphs_note(engine.graph_failure))
    return code


def _plan(given: Flags, job: Job, loaded: Loaded) -> Plan:
    """Give what the loop is to do."""
    from .generating import Plan

    has_draws_in_text = job.is_inspected or given.color_by is not None
    return Plan(
        prompt=loaded.prompt,
        params=loaded.settings.params,
        num_samples=job.num_samples,
        inspection=job.inspection,
        does_show_draws=given.trace is not None
        or job.format == "jsonl"
        or (job.format == "text" and has_draws_in_text),
        does_keep_outputs=job.format != "text" and job.is_inspected,
        load_seconds=loaded.load_seconds,
    )


def _tracer(view: View, trace: Destination, shared: Run, loaded: Loaded, words: Words, job: Job) -> TraceView:
    """Give the view that also writes the trace."""
    from .token_names import TokenNames
    from .trace_writing import TraceView, header_facts

    model = loaded.model
    facts = header_facts(model.vocab_size, loaded.prompt.ids, words, job.inspection.num_leading)
    return TraceView(view, trace, shared, TokenNames(model.tokenizer), facts)


def _overview(given: Flags, job: Job, destination: Destination) -> ManyTexts | None:
    from .text_views import many_texts

    return many_texts(given, job, destination)


def _view(given: Flags, job: Job, shared: Run, model: Model, destination: Destination) -> View:
    from .documents import DocumentView
    from .text_views import text_view
    from .token_names import TokenNames

    names = TokenNames(model.tokenizer)
    if job.format == "text":
        return text_view(given, job, shared, names, model.vocab_size, destination)
    return DocumentView(
        destination.stream,
        shared,
        names.text,
        does_stream=job.format == "jsonl",
        does_inspect=job.is_inspected,
        asked=job.asked,
    )
