"""`minigen run`: flags in, settings merged, the engine stepped, a view fed."""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from . import options as o
from .notes import Notes

if TYPE_CHECKING:
    from ..generation.model import Model
    from .destination import Destination
    from .interrupts import Interrupts
    from .job import Flags, Job
    from .samples import Run
    from .views import View


def run(
    context: typer.Context,
    prompt: o.PromptText = None,
    file: o.Files = None,
    system: o.System = None,
    chat: o.Chat = False,
    raw: o.Raw = False,
    chat_template: o.ChatTemplate = None,
    truncate: o.Truncate = None,
    preset: o.PresetName = None,
    model: o.ModelSource = None,
    revision: o.Revision = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    threads: o.Threads = None,
    temperature: o.Temperature = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    min_p: o.MinP = None,
    typical_p: o.TypicalP = None,
    repetition_penalty: o.RepetitionPenalty = None,
    frequency_penalty: o.FrequencyPenalty = None,
    presence_penalty: o.PresencePenalty = None,
    no_repeat_ngram_size: o.NoRepeatNgramSize = None,
    logit_bias: o.LogitBias = None,
    max_new_tokens: o.MaxNewTokens = None,
    stop: o.Stop = None,
    ignore_eos: o.IgnoreEos = False,
    seed: o.Seed = None,
    num_samples: o.NumSamples = None,
    inspect: o.Inspect = False,
    top: o.Top = None,
    json: o.Json = False,
    jsonl: o.JsonLines = False,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,  # main() sees to it
    output: o.OutputFile = None,
    version: o.Version = False,
    offline: o.Offline = False,
    no_stdin: o.NoStdin = False,
    trust_remote_code: o.TrustRemoteCode = False,
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
    return Flags(**named, sampling=_sampling(params))


def _sampling(params: dict[str, Any]) -> dict[str, Any]:
    """Give the sampling settings among a command's parameters; None means not given."""
    from ..presets.settings import SAMPLING

    given = {name: params.get(name) for name in SAMPLING}
    given["logit_bias"] = dict(params["logit_bias"]) if params["logit_bias"] else None
    given["stop"] = list(params["stop"]) if params["stop"] else None
    given["ignore_eos"] = params["ignore_eos"] or None
    return given


def execute(given: Flags, notes: Notes, interrupts: Interrupts) -> int:
    """Do a run and give its exit code. Everything that needs no model is checked before one is loaded."""
    from .destination import Destination
    from .job import build_job, check_contradictions

    check_contradictions(given)
    with Destination(given.output) as destination:
        return _generate(given, build_job(given, notes), destination, notes, interrupts)


def _generate(given: Flags, job: Job, destination: Destination, notes: Notes, interrupts: Interrupts) -> int:
    from dataclasses import replace

    from .. import presets
    from ..generation.collection import paused_collection
    from .encoding import choose_mode, encode
    from .reporting import Report
    from .samples import Run
    from .vocabulary import check_token_ids

    notes.status(f"loading {given.model or job.preset.name} ...")
    check_token_ids(job)
    began = time.perf_counter()
    with paused_collection():
        model = _load(given, job, notes)
        gc.freeze()  # the libraries stay to the end: never look through them again
    load_seconds = time.perf_counter() - began
    for text in model.warnings:
        notes.warn(f"warning: {text}")
    settings = presets.resolve(job.preset, job.flags, model.sampling_defaults)
    settings = replace(settings, device=model.device, dtype=model.dtype, mode=choose_mode(settings, job, model, notes))
    prompt = encode(job, model, settings, notes)
    notes.status(f"reading the prompt ({len(prompt.ids)} tokens) ...")

    from ..generation.engine import Engine
    from .generating import Generation, Plan

    choices = settings.choices()
    shared = Run(model=model.name, preset=job.preset.name, prompt=job.prompt, settings=choices, device=model.device)
    inspected = settings.params if job.num_candidates and job.format == "text" else None
    report = Report(shared, notes, is_verbose=given.verbose, is_quiet=given.quiet, inspected=inspected)
    plan = Plan(
        prompt=prompt,
        params=settings.params,
        num_samples=job.num_samples,
        num_candidates=job.num_candidates,
        does_keep_outputs=job.format != "text" and job.num_candidates > 0,
        load_seconds=load_seconds,
    )

    def start(seed: int) -> None:
        destination.keep()  # from here on what there is of the text is kept
        report.start(seed)

    view = _view(given, job, shared, model, destination)
    return Generation(Engine(model), plan, view, notes, interrupts, start=start, report=report.end).run()


def _load(given: Flags, job: Job, notes: Notes) -> Model:
    from .progress import TerminalProgress
    from .reporting import LoadProgress

    progress = LoadProgress(TerminalProgress(given.quiet), notes)
    from ..generation.model import load_model

    return load_model(job.model, offline=given.offline, progress=progress, threads=given.threads)


def _view(given: Flags, job: Job, shared: Run, model: Model, destination: Destination) -> View:
    from .live import LiveView
    from .terminal import console_for, is_terminal, may_redraw
    from .token_names import TokenNames
    from .views import TableView, TextView

    names = TokenNames(model.tokenizer)
    if job.format != "text":
        from .documents import DocumentView

        is_stream = job.format == "jsonl"
        does_inspect = job.num_candidates > 0
        return DocumentView(destination.stream, shared, names.text, does_stream=is_stream, does_inspect=does_inspect)
    text = TextView(destination.stream, is_terminal=destination.is_terminal)
    if not job.num_candidates:
        return text
    tables = console_for(sys.stderr, given.color)
    if may_redraw(destination.stream) and is_terminal(sys.stderr):
        return LiveView(console_for(destination.stream, given.color), tables, names)
    return TableView(text, tables, names)
