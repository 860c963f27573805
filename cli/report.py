"""`minigen report`: a trace file as one web page that needs nothing else."""

from __future__ import annotations

import io
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..generation.ranges import Range
from . import options as o
from .coloring import Measure
from .notes import Notes
from .option_kinds import number

if TYPE_CHECKING:
    from .destination import Destination
    from .trace_file import Trace

TraceName = Annotated[
    Path, typer.Argument(metavar="FILE", help="A file that minigen run --trace wrote; - is standard input.")
]
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


def report(
    file: TraceName,
    output: o.OutputFile = None,
    svg: Svg = False,
    color_by: ColorBy = None,
    token: Token = None,
    sample: SampleNumber = None,
    columns: Columns = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,  # main() sees to it
) -> None:
    """Write a traced run as a web page: the text coloured by any measure, and how each token was chosen.

    The page is complete in itself: open it in a browser, send it, keep it; it asks the network for nothing.
    With --svg it is a picture for a document instead.

    Example: minigen report run.trace -o report.html

    Example: minigen report run.trace --svg --color-by rank --token 3 -o run.svg
    """
    from .trace_reading import read_trace

    look = Look(is_svg=svg, measure=color_by, tokens=tuple(token or ()), sample=sample, columns=columns)
    _check(file, output, look)
    notes = Notes(sys.stderr, is_quiet=quiet)
    trace = read_trace(file)
    for warning in trace.warnings:
        notes.warn(warning)
    _deliver(_drawn(trace, look), output, look, notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is to be made of a trace: a page, or a picture of some of it."""

    is_svg: bool
    measure: Measure | None
    tokens: tuple[int, ...]  # from 1
    sample: int | None  # from 0
    columns: int | None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return "picture" if self.is_svg else "page"


def _check(file: Path, output: Path | None, look: Look) -> None:
    """Refuse flags that a page has no use for, and places where it cannot go."""
    from ..generation.errors import UsageError
    from .destination import is_standard_output
    from .reading import names_stdin
    from .terminal import is_terminal

    if not look.is_svg and (look.tokens or any(each is not None for each in (look.measure, look.sample, look.columns))):
        raise UsageError("--color-by, --token, --sample and --columns need --svg: on the page they can be chosen.")
    if (output is None or is_standard_output(output)) and is_terminal(sys.stdout):
        example = ("run" if names_stdin(file) else file.stem) + (".svg" if look.is_svg else ".html")
        raise UsageError(
            f"The {look.name} would fill the terminal: name a file for it, such as -o {shlex.quote(example)}, or lead "
            "it into a pipe."
        )
    if output is not None and _are_same(file, output):
        raise UsageError(f"--output {str(output)!r} is the trace itself: give the {look.name} another name.")


def _drawn(trace: Trace, look: Look) -> str:
    """Give the page or the picture."""
    if not look.is_svg:
        from .report_page import page_of

        return page_of(trace)
    from .picture import COLUMNS, picture_of

    return picture_of(
        trace,
        sample=look.sample or 0,
        measure=look.measure or "surprisal",
        tokens=look.tokens,
        columns=look.columns or COLUMNS,
    )


def _deliver(page: str, output: Path | None, look: Look, notes: Notes) -> None:
    """Write what was made, and where it went into a file say which, and how large it is."""
    from ..generation.progress import bytes_text
    from .destination import Destination

    with Destination(output) as destination:
        if isinstance(destination.stream, io.TextIOWrapper):
            destination.stream.reconfigure(encoding="utf-8", newline="")  # which the page says of itself
        _write(page, destination)
    if destination.is_file:
        notes.note(f"Wrote {output} ({bytes_text(len(page.encode()))}).")


def _write(page: str, destination: Destination) -> None:
    """Write the page whole, or leave what was there."""
    try:
        destination.stream.write(page)
        destination.stream.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not destination.is_file:
            raise  # a reader that is gone is not a failure; of standard output there is no name to tell
        raise destination.failure(error) from error
    destination.keep()


def _are_same(file: Path, output: Path) -> bool:
    """Whether two paths lead to one file; one that is not there is another."""
    from .reading import names_stdin

    try:
        return os.path.samestat(os.stat(0 if names_stdin(file) else file), output.stat())
    except OSError:
        return False
