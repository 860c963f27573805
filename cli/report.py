"""`minigen report`: a trace file as one web page that needs nothing else."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..generation.ranges import Range
from . import options as o
from .job import Measure
from .notes import Notes
from .option_kinds import number

if TYPE_CHECKING:
    from .destination import Destination

TraceName = Annotated[
    Path, typer.Argument(metavar="FILE", help="A file that minigen run --trace wrote; - is standard input.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", show_default=False,
        help="Write it here; without it, to standard output, unless that is a terminal.",
    ),
]  # fmt: skip
Svg = Annotated[bool, typer.Option("--svg", metavar="", help="Draw the terminal's view instead of a page.")]
ColorBy = Annotated[
    Measure | None,
    typer.Option(
        "--color-by", metavar="prob|rank|entropy|surprisal", show_default=False,
        help="With --svg: colour the text by this (default: surprisal).",
    ),
]  # fmt: skip
Token = Annotated[
    list[int] | None,
    typer.Option(
        "--token", metavar="NUMBER", show_default=False,
        help="With --svg: show the tables of this token, from 1. Repeatable.",
    ),
]  # fmt: skip
SampleNumber = Annotated[
    int | None,
    typer.Option("--sample", metavar="NUMBER", show_default=False, help="With --svg: this sample, from 0."),
]
Columns = Annotated[
    int | None,
    typer.Option(
        "--columns", metavar="NUMBER", show_default=False, parser=number("--columns", Range(int, 20, 400)),
        help="With --svg: the columns of the terminal in the picture (default: 80).",
    ),
]  # fmt: skip
Quiet = Annotated[bool, typer.Option("-q", "--quiet", metavar="", help="Hide the note of what was written.")]


def report(
    file: TraceName,
    output: Output = None,
    svg: Svg = False,
    color_by: ColorBy = None,
    token: Token = None,
    sample: SampleNumber = None,
    columns: Columns = None,
    quiet: Quiet = False,
    debug: o.Debug = False,  # main() sees to it
) -> None:
    """Write a traced run as a web page: the text coloured by any measure, and how each token was chosen.

    The page is complete in itself: open it in a browser, send it, keep it; it asks the network for nothing.
    With --svg it is a picture for a document instead.

    Example: minigen report run.trace -o report.html

    Example: minigen report run.trace --svg --color-by surprisal --token 3 -o run.svg
    """
    from ..generation.errors import UsageError
    from ..generation.progress import bytes_text
    from .destination import Destination
    from .terminal import is_terminal
    from .trace_reading import read_trace

    what = "picture" if svg else "page"
    if not svg and any(each is not None for each in (color_by, token or None, sample, columns)):
        raise UsageError("--color-by, --token, --sample and --columns need --svg: on the page they can be chosen.")
    if output is None and is_terminal(sys.stdout):
        name = "run.svg" if svg else "report.html"
        raise UsageError(f"The {what} would fill the terminal: name a file for it, such as --output {name}.")
    if output is not None and _are_same(file, output):
        raise UsageError(f"--output {str(output)!r} is the trace itself: give the {what} another name.")
    notes = Notes(sys.stderr, is_quiet=quiet)
    trace = read_trace(file)
    for warning in trace.warnings:
        notes.warn(warning)
    if svg:
        from .picture import COLUMNS, picture_of

        page = picture_of(
            trace, sample=sample or 0, measure=color_by or "surprisal", tokens=token or (), columns=columns or COLUMNS
        )
    else:
        from .report_page import page_of

        page = page_of(trace)
    with Destination(output) as destination:
        if isinstance(destination.stream, io.TextIOWrapper):
            destination.stream.reconfigure(encoding="utf-8", newline="")  # which the page says of itself
        _write(page, destination)
    if destination.is_file:
        notes.note(f"The {what} has {bytes_text(len(page.encode()))}: {output}")


def _write(page: str, destination: Destination) -> None:
    """Write the page whole, or leave what was there."""
    try:
        destination.stream.write(page)
        destination.stream.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not destination.is_file:
            raise  # a reader that is gone is no failure; of standard output there is no name to tell
        raise destination.failure(error) from error
    destination.keep()


def _are_same(file: Path, output: Path) -> bool:
    """Whether two paths lead to one file; one that is not there is another."""
    from .reading import names_stdin

    try:
        return os.path.samestat(os.stat(0 if names_stdin(file) else file), output.stat())
    except OSError:
        return False
