"""`minigen presets`: list, show, check and make presets."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .escaping import shown, shown_in_cell
from .json_line import is_unicode, line_of
from .options import preset_names
from .terminal import is_terminal

if TYPE_CHECKING:
    from ..presets import Listed

app = typer.Typer(
    help="List, show, check and make presets: YAML files with model, prompt and sampling settings."
    "\n\nExample: minigen presets new mine --from precise",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


Name = Annotated[str, typer.Argument(metavar="NAME", help="A preset's name or file.", autocompletion=preset_names)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_presets(as_json: AsJson = False) -> None:
    """List all presets.

    Example: minigen presets list
    """
    from .. import presets

    items = presets.names()
    if as_json:
        fields = [
            {"name": item.name, "description": item.description, "kind": _kind(item), "path": str(item.path)}
            for item in items
        ]
        typer.echo(line_of(fields, is_ascii=not is_unicode(sys.stdout)))
        return
    from .listing import Heading, print_list

    rows = [(item.name, _kind(item), item.description) for item in items]
    print_list([Heading("", 0, 12), Heading("", 1), Heading("", 2, 16)], rows, has_titles=False)


@app.command()
def show(
    name: Name,
    raw: Annotated[bool, typer.Option("--raw", help="Print the file as it is, without its parents.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every setting of a preset, merged over its parents, and where each comes from.

    A model's own defaults (generation_config) are not known before it is loaded: `minigen run -v` shows them too.

    Example: minigen presets show smollm2
    """
    from .. import presets
    from ..presets.describing import document, rows
    from ..presets.finding import find
    from ..presets.reading import decode, read_bytes

    if raw and as_json:
        raise typer.BadParameter("--raw and --json cannot go together.")
    if raw:
        found = find(name)
        text = decode(read_bytes(found.path, found.label), found.label)
        typer.echo(shown(text) if is_terminal(sys.stdout) else text, nl=False)
        return
    preset = presets.load(name)
    for warning in preset.warnings:
        typer.echo(shown_in_cell(f"warning: {warning}"), err=True)
    if as_json:
        typer.echo(line_of(document(preset), is_ascii=not is_unicode(sys.stdout)))
        return
    typer.echo(shown_in_cell(f"{preset.name}: {preset.description}" if preset.description else preset.name))
    typer.echo(shown_in_cell(str(preset.path)))
    _print_table([tuple(map(shown_in_cell, row)) for row in rows(preset)])


@app.command()
def path(name: Name) -> None:
    """Print the path of a preset's file.

    Example: minigen presets path smollm2
    """
    from ..presets.finding import find
    from ..presets.reading import read_bytes

    found = find(name)
    read_bytes(found.path, found.label)  # says what is wrong with a path that cannot be used
    typer.echo(os.fsencode(found.path))  # the bytes that the system knows


@app.command()
def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Preset files or names.", autocompletion=preset_names)
    ],
) -> None:
    """Check preset files: prints `ok` or each fault with its line; exit code 2 if there is any.

    Example: minigen presets check ./mine.yaml
    """
    from .. import presets

    has_faults = False
    for file in files:
        faults = presets.problems(file)
        has_faults = has_faults or bool(faults)
        for line in faults or [f"{file}: ok"]:
            typer.echo(shown_in_cell(line))
        for warning in [] if faults else presets.load(file).warnings:
            typer.echo(shown_in_cell(f"warning: {warning}"), err=True)
    if has_faults:
        raise typer.Exit(2)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new preset's name.")],
    parent: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME", help="The preset to start from.", autocompletion=preset_names),
    ] = None,
) -> None:
    """Write a commented preset file of your own and print its path; an existing file is left alone.

    Example: minigen presets new mine --from precise
    """
    from .. import presets
    from ..presets.drafts import create
    from ..presets.finding import builtin_names

    path = create(name, parent or presets.DEFAULT)
    typer.echo(str(path))
    if name in builtin_names():
        typer.echo(
            shown_in_cell(
                f"This preset takes the place of the built-in {name}, which comes back once {path} is deleted."
            ),
            err=True,
        )


@app.command()
def export(
    name: Name,
    to: Annotated[
        Literal["hf", "vllm", "llama.cpp", "ollama"],
        typer.Option("--to", metavar="hf|vllm|llama.cpp|ollama", help="The tool whose form to write."),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write it here; - is standard output.")
    ] = None,
) -> None:
    """Write a preset in another tool's form: generation_config.json, request to vllm serve, llama.cpp flags, Modelfile.

    Standard error names what has no counterpart there, and what that tool does otherwise.

    A model's own defaults (generation_config) are not known here: what the preset leaves open is written as neutral.

    Example: minigen presets export precise --to ollama -o Modelfile
    """
    from .. import presets
    from ..presets.exporting import export as exported
    from .destination import Destination

    preset = presets.load(name)
    done = exported(preset, to)
    for line in [*(f"warning: {text}" for text in preset.warnings), *(f"note: {text}" for text in done.notes)]:
        typer.echo(shown_in_cell(line), err=True)
    with Destination(output) as destination:
        destination.stream.write(shown(done.text) if destination.is_terminal else done.text)
        destination.stream.flush()
        destination.keep()


@app.command()
def schema() -> None:
    """Print the JSON schema of preset files, for editors that check YAML.

    Example: minigen presets schema > preset.schema.json
    """
    from ..presets.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def _kind(item: Listed) -> str:
    if not item.is_user:
        return "built-in"
    return "user, shadows built-in" if item.is_shadowing else "user"


def _print_table(rows: list[tuple[str, ...]]) -> None:
    """Print three columns, two spaces apart; a cell past 40 characters pushes its row."""
    widths = [max((len(row[i]) for row in rows if len(row[i]) <= 40), default=0) for i in (0, 1)]
    for first, second, third in rows:
        typer.echo(f"{first:{widths[0]}}  {second:{widths[1]}}  {third}".rstrip())
