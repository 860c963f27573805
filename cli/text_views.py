"""Which view shows a run as text: alone or with tables, live or plain, in colours or with a list."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .color_views import ColoredTextView, LegendView, ListView
from .coloring import STYLES_OF_16, STYLES_OF_256, Coloring
from .live import LiveView
from .many_texts import ManyTexts
from .margin_words import MarginWords
from .terminal import console_for, has_256_colors, is_terminal, may_color, may_redraw
from .views import TableView, TextView, View

if TYPE_CHECKING:
    from .destination import Destination
    from .job import Flags, Job
    from .samples import Run
    from .token_names import TokenNames


def text_view(
    given: Flags, job: Job, shared: Run, names: TokenNames, num_tokens: int, destination: Destination
) -> View:
    """Give the view that the flags ask for, as far as the streams allow. num_tokens: those of the vocabulary."""
    coloring = _coloring(given, destination, names)
    if not job.is_inspected:
        view = _plain_view(destination, coloring)
    else:
        words = MarginWords(num_tokens, {name: choice.value for name, choice in shared.settings.items()})
        view = _inspecting_view(given, destination, names, coloring, words if given.stages else None)
    if given.color_by is None:
        return view
    if coloring is None:
        return ListView(view, console_for(sys.stderr, given.color), names, given.color_by)
    if may_color(sys.stderr, given.color):
        return LegendView(view, console_for(sys.stderr, given.color), coloring)
    return view


def many_texts(given: Flags, job: Job, destination: Destination) -> ManyTexts | None:
    """Give the view of several texts that come together; None where the text is not plain or cannot be redrawn."""
    is_plain = job.format == "text" and not job.is_inspected and given.color_by is None
    if job.num_samples == 1 or not is_plain or not may_redraw(destination.stream):
        return None
    text = TextView(destination.stream, is_terminal=True)
    return ManyTexts(text, console_for(destination.stream, given.color), job.num_samples)


def _coloring(given: Flags, destination: Destination, names: TokenNames) -> Coloring | None:
    """Give the colours of the text; none where they are not wanted, and none in a file."""
    if given.color_by is None or destination.is_file or not may_color(destination.stream, given.color):
        return None
    return Coloring(given.color_by, STYLES_OF_256 if has_256_colors() else STYLES_OF_16, names)


def _plain_view(destination: Destination, coloring: Coloring | None) -> View:
    if coloring is None:
        return TextView(destination.stream, is_terminal=destination.is_terminal)
    return ColoredTextView(destination.stream, coloring, is_terminal=destination.is_terminal)


def _inspecting_view(
    given: Flags, destination: Destination, names: TokenNames, coloring: Coloring | None, words: MarginWords | None
) -> View:
    tables = console_for(sys.stderr, given.color)
    if may_redraw(destination.stream) and is_terminal(sys.stderr):
        text = console_for(destination.stream, given.color)
        return LiveView(text, tables, names, words=words, coloring=coloring)
    return TableView(_plain_view(destination, coloring), tables, names, words)
