"""The options that are not sampling settings, in the groups in which help shows them. None means "not given"."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..generation.ranges import Range
from .coloring import Measure
from .option_kinds import number, setting, switch, words
from .terminal import ColorChoice

_INPUT, _MODEL, _OUTPUT = "Input", "Model", "Output"


def preset_names(incomplete: str) -> list[tuple[str, str]]:
    """Give the names of presets with their descriptions, for the shell's completion."""
    from .. import presets

    return [(listed.name, listed.description) for listed in presets.names() if listed.name.startswith(incomplete)]


def show_version(is_asked: bool) -> None:
    """Print name and version, and end."""
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"minigen {version('minigen-cli')}")
        raise typer.Exit


PromptText = Annotated[
    str | None,
    typer.Argument(
        metavar="PROMPT",
        help="What to continue or to answer; - is standard input. Files and standard input follow it after a blank "
        "line, or stand where it says {input}.",
        show_default=False,
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "-f", "--file", metavar="PATH", rich_help_panel=_INPUT, show_default=False,
        help="Add a file's text to the prompt; - is standard input. Repeatable.",
    ),
]  # fmt: skip
System = Annotated[
    str | None,
    typer.Option("--system", metavar="TEXT", rich_help_panel=_INPUT, help="Tell a chat model how to behave."),
]
Chat = Annotated[bool, switch("--chat", "Answer the prompt as one turn of a conversation.", _INPUT)]
Raw = Annotated[bool, switch("--raw", "Continue the prompt as it stands.", _INPUT)]
ChatTemplate = Annotated[
    Path | None,
    typer.Option(
        "--chat-template", metavar="FILE", rich_help_panel=_INPUT, show_default=False,
        help="Use this Jinja template instead of the model's own.",
    ),
]  # fmt: skip
Truncate = Annotated[
    Literal["head", "tail"] | None,
    typer.Option(
        "--truncate", metavar="head|tail", rich_help_panel=_INPUT,
        help="Cut a prompt that is too long: drop its beginning (head) or its end (tail).",
    ),
]  # fmt: skip

PresetName = Annotated[
    str | None,
    typer.Option(
        "-p", "--preset", metavar="NAME or FILE", rich_help_panel=_MODEL, autocompletion=preset_names,
        help="Take model, prompt and sampling settings from a preset (default: smollm2).",
    ),
]  # fmt: skip
ModelSource = Annotated[
    str | None,
    typer.Option(
        "-m", "--model", metavar="SOURCE", rich_help_panel=_MODEL,
        help="A hub id, a folder or a .gguf file, in place of the preset's model section.",
    ),
]  # fmt: skip
Revision = Annotated[
    str | None,
    typer.Option("--revision", metavar="NAME", rich_help_panel=_MODEL, help="Branch, tag or commit of the hub model."),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", rich_help_panel=_MODEL, help="auto, cuda, cuda:N, mps, cpu or balanced.",
        autocompletion=words("auto", "cuda", "mps", "cpu", "balanced"),
    ),
]  # fmt: skip
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="TYPE", rich_help_panel=_MODEL, help="auto, float32, float16 or bfloat16.",
        autocompletion=words("auto", "float32", "float16", "bfloat16"),
    ),
]  # fmt: skip
Compile = Annotated[
    Literal["auto", "never", "require"] | None,
    typer.Option(
        "--compile", metavar="auto|never|require", rich_help_panel=_MODEL, show_default=False,
        help="Use a compiled step (minigen models compile): auto, where there is one; never; or require one.",
    ),
]  # fmt: skip
Weights = Annotated[
    Literal["exact", "int8"] | None,
    typer.Option(
        "--weights", metavar="exact|int8", rich_help_panel=_MODEL, show_default=False,
        help="Weights of the compiled step: exact, as they were saved, or int8, in eight bits.",
    ),
]  # fmt: skip
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="NUMBER", rich_help_panel=_MODEL, parser=number("--threads", Range(int, 1, 4096)),
        help="How many CPU threads compute.",
    ),
]  # fmt: skip

NumSamples = Annotated[int | None, setting("num_samples", "-n", about="Generates this many texts.")]

Inspect = Annotated[bool, switch("--inspect", "Show each step's candidates and why one was chosen.", _OUTPUT)]
Top = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="NUMBER", parser=number("--top", Range(int, 1, 1000)), rich_help_panel=_OUTPUT,
        help="Candidates that --inspect lists (default: 10).",
    ),
]  # fmt: skip
Stages = Annotated[
    bool,
    switch("--stages", "As --inspect, and what each stage did to the distribution, and how close it was.", _OUTPUT),
]
ColorBy = Annotated[
    Measure | None,
    typer.Option(
        "--color-by", metavar="prob|rank|entropy|surprisal", rich_help_panel=_OUTPUT,
        help="Colour the text by how each token came about; without colour, list it.",
    ),
]  # fmt: skip
Json = Annotated[bool, switch("--json", "Print one JSON document per sample.", _OUTPUT)]
JsonDocument = Annotated[bool, switch("--json", "Print one JSON document.", _OUTPUT)]
JsonLines = Annotated[bool, switch("--jsonl", "Print one JSON line per token, then the document.", _OUTPUT)]
Color = Annotated[
    ColorChoice,
    typer.Option(
        "--color", metavar="auto|always|never", rich_help_panel=_OUTPUT, help="When to use colour.",
        show_default=True,
    ),
]  # fmt: skip
Quiet = Annotated[bool, switch("-q --quiet", "Hide status, statistics and notes.", _OUTPUT)]
Verbose = Annotated[bool, switch("-v --verbose", "Show every setting with its origin, and statistics.", _OUTPUT)]
VerboseModel = Annotated[bool, switch("-v --verbose", "Show which model reads how many tokens.", _OUTPUT)]
Debug = Annotated[bool, switch("--debug", "Show a traceback when something fails.", None)]

OutputFile = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", rich_help_panel=_OUTPUT, show_default=False,
        help="Write what comes out here instead of on standard output; - is standard output.",
    ),
]  # fmt: skip
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace", metavar="FILE", rich_help_panel=_OUTPUT, show_default=False,
        help="Keep the run for minigen replay and minigen report.",
    ),
]  # fmt: skip
TraceWidth = Annotated[
    int | None,
    typer.Option(
        "--trace-width", metavar="NUMBER", parser=number("--trace-width", Range(int, 1, 1_000_000)),
        rich_help_panel=_OUTPUT, help="Logits that --trace keeps of each step (default: 1024).",
    ),
]  # fmt: skip
Offline = Annotated[bool, switch("--offline", "Use what is on this disk; open no connection.", _MODEL)]
NoStdin = Annotated[bool, switch("--no-stdin", "Leave standard input alone.", _INPUT)]
TrustRemoteCode = Annotated[
    bool, switch("--trust-remote-code", "Allow Python code that comes with the model to run.", _MODEL)
]
Version = Annotated[
    bool,
    typer.Option(
        "--version", metavar="", is_eager=True, callback=show_version, show_default=False,
        help="Show the version.",
    ),
]  # fmt: skip
