"""The options of `minigen run`, in the groups in which help shows them. A value of None means "not given"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..generation.about import SETTINGS
from ..generation.errors import ParameterError
from ..generation.params import RANGES, Range
from .terminal import ColorChoice

_INPUT, _MODEL, _SAMPLING, _OUTPUT, _WORLD = "Input", "Model", "Sampling", "Output", "World"


def _number(flag: str, limits: Range) -> Callable[[str], int | float]:
    """Give a parser that says, for anything but a number within `limits`, which flag wants what."""

    def parse(text: str) -> int | float:
        try:
            value = limits.kind(text)
        except ValueError:
            raise ParameterError(flag, text, str(limits) if limits.kind is int else f"a number, {limits}") from None
        return limits.check(flag, value)

    return parse


def _setting(name: str, short: str = "", *, about: str | None = None) -> Any:
    """Give the option of one number setting; its range stands in params.py, what it does in about.py."""
    flag = f"--{name.replace('_', '-')}"
    return typer.Option(
        *(short, flag) if short else (flag,),
        help=f"{about or SETTINGS[name]} ({RANGES[name]})",
        parser=_number(flag, RANGES[name]),
        metavar="NUMBER",
        rich_help_panel=_SAMPLING,
    )


def _words(*words: str) -> Callable[[str], list[str]]:
    """Give a shell completion that offers these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _bias(text: str) -> tuple[int, float]:
    token_id, _, value = text.partition("=")
    try:
        return int(token_id), float(value)
    except ValueError:
        raise ParameterError("--logit-bias", text, "ID=B, a token id and a number, such as 257=-5") from None


def _switch(flags: str, about: str, panel: str) -> Any:
    return typer.Option(*flags.split(), help=about, metavar="", rich_help_panel=panel, show_default=False)


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
Chat = Annotated[bool, _switch("--chat", "Answer the prompt as one turn of a conversation.", _INPUT)]
Raw = Annotated[bool, _switch("--raw", "Continue the prompt as it stands.", _INPUT)]
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
        autocompletion=_words("auto", "cuda", "mps", "cpu", "balanced"),
    ),
]  # fmt: skip
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="TYPE", rich_help_panel=_MODEL, help="auto, float32, float16 or bfloat16.",
        autocompletion=_words("auto", "float32", "float16", "bfloat16"),
    ),
]  # fmt: skip
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="NUMBER", rich_help_panel=_MODEL, parser=_number("--threads", Range(int, 1, 4096)),
        help="How many CPU threads compute.",
    ),
]  # fmt: skip

Temperature = Annotated[float | None, _setting("temperature", "-t")]
TopK = Annotated[int | None, _setting("top_k")]
TopP = Annotated[float | None, _setting("top_p")]
MinP = Annotated[float | None, _setting("min_p")]
TypicalP = Annotated[float | None, _setting("typical_p")]
RepetitionPenalty = Annotated[float | None, _setting("repetition_penalty")]
FrequencyPenalty = Annotated[float | None, _setting("frequency_penalty")]
PresencePenalty = Annotated[float | None, _setting("presence_penalty")]
NoRepeatNgramSize = Annotated[int | None, _setting("no_repeat_ngram_size")]
LogitBias = Annotated[
    list[Any] | None,
    typer.Option(
        "--logit-bias", metavar="ID=B", parser=_bias, rich_help_panel=_SAMPLING, show_default=False,
        help="Add B to the logit of token ID; -inf bans it. Repeatable.",
    ),
]  # fmt: skip
MaxNewTokens = Annotated[int | None, _setting("max_new_tokens")]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop", metavar="TEXT", rich_help_panel=_SAMPLING, show_default=False,
        help="End where the text would say this, literally. Repeatable.",
    ),
]  # fmt: skip
IgnoreEos = Annotated[bool, _switch("--ignore-eos", "Go on after an end token.", _SAMPLING)]
Seed = Annotated[int | None, _setting("seed")]
NumSamples = Annotated[int | None, _setting("num_samples", "-n", about="Generates this many texts.")]

Inspect = Annotated[bool, _switch("--inspect", "Show each step's candidates and why one was chosen.", _OUTPUT)]
Top = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="NUMBER", parser=_number("--top", Range(int, 1, 1000)), rich_help_panel=_OUTPUT,
        help="Candidates that --inspect lists (default: 10).",
    ),
]  # fmt: skip
Json = Annotated[bool, _switch("--json", "Print one JSON document per sample.", _OUTPUT)]
JsonLines = Annotated[bool, _switch("--jsonl", "Print one JSON line per token, then the document.", _OUTPUT)]
Color = Annotated[
    ColorChoice,
    typer.Option(
        "--color", metavar="auto|always|never", rich_help_panel=_OUTPUT, help="When to use colour.",
        show_default=True,
    ),
]  # fmt: skip
Quiet = Annotated[bool, _switch("-q --quiet", "Hide status, statistics and notes.", _OUTPUT)]
Verbose = Annotated[bool, _switch("-v --verbose", "Show every setting with its origin, and statistics.", _OUTPUT)]
Debug = Annotated[bool, _switch("--debug", "Show a traceback when something fails.", _OUTPUT)]

OutputFile = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", rich_help_panel=_WORLD, show_default=False,
        help="Write the text or the JSON here instead of on standard output; - is standard output.",
    ),
]  # fmt: skip
Offline = Annotated[bool, _switch("--offline", "Use what is on this disk; open no connection.", _WORLD)]
NoStdin = Annotated[bool, _switch("--no-stdin", "Leave standard input alone.", _WORLD)]
TrustRemoteCode = Annotated[
    bool, _switch("--trust-remote-code", "Allow Python code that comes with the model to run.", _WORLD)
]
Version = Annotated[
    bool,
    typer.Option(
        "--version", metavar="", is_eager=True, callback=show_version, show_default=False, rich_help_panel=_WORLD,
        help="Show the version.",
    ),
]  # fmt: skip
