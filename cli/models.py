"""`minigen models`: list, fetch, compile, find, describe and remove model files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from ..generation.progress import bytes_text
from .escaping import shown_in_cell
from .json_line import is_unicode, line_of
from .model_facts import document_of, lines_of
from .notes import say
from .which_model import Revision, Which, files_of, sources_of

app = typer.Typer(
    help="List, fetch, compile, describe and remove model files.\n\nExample: minigen models show smollm2",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show warnings and errors only.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use what is on this disk only.")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the presets' models and every model in the caches: name, source, size, compiled steps, and where it lies.

    A terminal that is too narrow for all of it gets the names and sizes first; a file or a pipe gets all of it.

    Example: minigen models list
    """
    from .inventory import entries

    found = entries(warn=lambda text: say(f"warning: {text}"))
    if as_json:
        _print_json([entry.as_json() for entry in found])
        return
    from .listing import Heading, print_list

    shows_steps = any(entry.compiled for entry in found)
    rows: list[tuple[str, ...]] = []
    for entry in found:
        size = bytes_text(entry.num_bytes) if entry.num_bytes is not None else "-"
        steps = [", ".join(entry.compiled)] if shows_steps else []
        rows.append((entry.label, entry.source, size, *steps, str(entry.path) if entry.path else "not fetched"))
    headings = [Heading("NAME", 0, 12), Heading("SOURCE", 3, 16), Heading("SIZE", 1)]
    headings += [Heading("COMPILED", 2)] if shows_steps else []
    print_list([*headings, Heading("WHERE", 4, 24)], rows, has_titles=True)


@app.command()
def pull(which: Which = "", revision: Revision = None, quiet: Quiet = False, offline: Offline = False) -> None:
    """Fetch a model ahead of its first use; without MODEL that of the default preset.

    Example: minigen models pull smollm2
    """
    from .. import presets
    from ..generation.fetching import fetch
    from ..generation.folder import inspect_folder, inspect_gguf
    from ..generation.store import size_on_disk
    from .progress import TerminalProgress

    progress = TerminalProgress(quiet)
    files = fetch(sources_of(which or presets.DEFAULT, revision), offline=offline, progress=progress)
    if files.gguf is None:
        inspect_folder(files.path, trust_remote_code=True)  # nothing of it runs here
        num_bytes = size_on_disk(files.path)
    else:
        inspect_gguf(files.path / files.gguf)
        num_bytes = (files.path / files.gguf).stat().st_size
    progress.note(f"{files.name} lies in {files.path} ({bytes_text(num_bytes)}).")


@app.command("compile")
def compile_model(
    which: Which = "",
    revision: Revision = None,
    weights: Annotated[
        Literal["exact", "int8"],
        typer.Option("--weights", metavar="exact|int8", help="Weights as they were saved, or in eight bits."),
    ] = "exact",
    quiet: Quiet = False,
    offline: Offline = False,
) -> None:
    """Compile the decode step of a model for this machine; run, batch and sweep then use it by themselves.

    Takes a few minutes, and a C++ compiler. Without MODEL that of the default preset.

    Int8 weights are used where --weights int8 or a preset names them; what they cost is measured and told.

    Example: minigen models compile smollm2

    Example: minigen models compile smollm2 --weights int8
    """
    from .. import presets
    from ..generation.fetching import fetch
    from ..generation.folder import inspect_folder
    from ..generation.store import size_on_disk
    from .compiled_steps import cost_text
    from .progress import TerminalProgress

    progress = TerminalProgress(quiet)
    files = fetch(sources_of(which or presets.DEFAULT, revision), offline=offline, progress=progress)
    if files.gguf is None:
        inspect_folder(files.path, trust_remote_code=False)
    from ..generation.compiling import compile_package

    facts = compile_package(files, weights=weights, progress=progress)
    size = bytes_text(size_on_disk(facts.folder))
    cost = "" if facts.perplexity is None else f", {cost_text(facts.perplexity)}"
    about = f"{weights} weights, {facts.build_seconds:.0f} s, {size} in {facts.folder}"
    progress.note(f"{files.name} is compiled ({about}){cost}.")


@app.command()
def path(which: Which = "", revision: Revision = None) -> None:
    """Print the folder, or the GGUF file, of a model that has been fetched.

    Example: ls "$(minigen models path smollm2)"
    """
    from .. import presets

    files = files_of(which or presets.DEFAULT, revision)
    typer.echo(os.fsencode(files.path / files.gguf if files.gguf else files.path))  # the bytes that the system knows


@app.command()
def show(which: Which = "", revision: Revision = None, as_json: AsJson = False) -> None:
    """Describe a model that has been fetched: its sizes, window, vocabulary and end tokens. The weights are not loaded.

    Example: minigen models show smollm2
    """
    from .. import presets
    from ..generation.describe import describe
    from .compiled_steps import compiled_steps

    files = files_of(which or presets.DEFAULT, revision)
    facts, steps = describe(files), compiled_steps(files)
    if as_json:
        _print_json(document_of(facts) | {"compiled": [step.as_json() for step in steps]})
    else:
        _print_rows([*lines_of(facts), *(("compiled", text) for text in [step.as_text() for step in steps] or ["no"])])


@app.command()
def rm(which: Which) -> None:
    """Delete a model from the caches; your own folders and files are left alone.

    Example: minigen models rm smollm2
    """
    from ..generation.errors import SourceError
    from ..generation.installed import installed, remove
    from ..generation.sources import PathSource

    names = [which] if which in {model.name for model in installed()} else []
    if not names:
        files = files_of(which, None)
        if isinstance(files.source, PathSource):
            raise SourceError(f"{files.path} is not in a cache of minigen's: delete it yourself if it is not needed.")
        names = [files.name]
    for name in names:
        say(f"Removed {name}: {bytes_text(remove(name))} freed.")


def _print_rows(rows: Sequence[tuple[str, ...]]) -> None:
    """Print columns two spaces apart; the last one is not padded."""
    cells = [[shown_in_cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        typer.echo("  ".join([*padded, row[-1]]))


def _print_json(content: Any) -> None:
    typer.echo(line_of(content, is_ascii=not is_unicode(sys.stdout)))
