"""A picture of what a terminal shows of a traced run: an SVG that needs no font and no network."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..generation.errors import UsageError
from .coloring import STYLES_OF_256, Coloring, Measure
from .escaping import shown, shown_in_cell
from .painting import Piece, text_of
from .traced_draws import draw_of, interval_of, output_of
from .traced_names import TracedNames

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from .margin_words import MarginWords
    from .trace_file import Trace, TracedSample

COLUMNS: Final = 80
_FORMAT: Final = """\
<svg class="minigen" viewBox="0 0 {width} {height}" role="img" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
    }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def picture_of(
    trace: Trace,
    *,
    sample: int = 0,
    measure: Measure | None = None,
    tokens: Sequence[int] = (),
    columns: int = COLUMNS,
) -> str:
    """Give the picture of one sample: its prompt and text, then the tables of some of its tokens.

    measure: what the text is coloured by; tokens: whose tables are shown, from 1.
    Raises UsageError for a sample or a token that the trace does not have.
    """
    from .margin_words import MarginWords

    chosen = _sample(trace, sample)
    names = TracedNames(trace)
    header = trace.header
    words = MarginWords(header.vocab_size, {name: each["value"] for name, each in header.settings.items()})
    console = _console(columns)
    for line in _text_lines(trace, chosen, names, measure, columns):
        console.print(line)
    for number in tokens:
        _print(console, _step_lines(chosen, number, names, words, columns))
    margins = (chosen.document or {}).get("margins")
    if tokens and margins:
        from .stage_tables import unchanged_lines

        whole = {name: interval_of(interval) for name, interval in margins.items()}
        _print(console, unchanged_lines(whole, words, width=columns))
    console.print()  # the lower edge would cut the last line
    return console.export_svg(title=shown_in_cell(f"minigen · {header.model}"), code_format=_FORMAT)


def _sample(trace: Trace, index: int) -> TracedSample:
    if not 0 <= index < len(trace.samples):
        raise UsageError(f"--sample {index} is not in the trace {trace.name}, which has {len(trace.samples)}.")
    return trace.samples[index]


def _console(columns: int) -> Console:
    from rich.console import Console

    return Console(
        record=True,
        file=io.StringIO(),
        width=columns,
        force_terminal=True,
        color_system="truecolor",
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )


def _print(console: Console, lines: Sequence[RenderableType]) -> None:
    """Print a block of lines, which fit already, after an empty one."""
    console.print()
    for line in lines:
        console.print(line, soft_wrap=True)


def _text_lines(
    trace: Trace, sample: TracedSample, names: TracedNames, measure: Measure | None, columns: int
) -> list[RenderableType]:
    """Give the prompt, dim, and the text, with what its colours mean."""
    mode = trace.header.settings.get("mode", {}).get("value")
    prompt = Piece(shown(trace.header.prompt) + ("" if mode == "raw" else "\n"), "dim")
    if measure is None:
        return [text_of([prompt, Piece(shown(sample.text))])]
    coloring = Coloring(measure, STYLES_OF_256, names)
    pieces = [piece for record in sample.tokens for piece in coloring.pieces(output_of(record))]
    tail = Piece(shown(sample.tail))
    text = text_of([prompt, *pieces, tail])
    text.no_wrap = False
    return [*coloring.legend(columns), text]


def _step_lines(
    sample: TracedSample, number: int, names: TracedNames, words: MarginWords, columns: int
) -> list[RenderableType]:
    from .step_tables import step_lines

    if not 1 <= number <= len(sample.tokens):
        raise UsageError(f"--token {number} is not in the trace, whose sample {sample.index} has {len(sample.tokens)}.")
    draw = draw_of(sample.tokens[number - 1])
    return step_lines(number, draw, names, words if draw.stages else None, width=columns)
