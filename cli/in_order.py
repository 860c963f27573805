"""Samples that run together, on a view that shows them one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..generation.trace import Output
from .samples import Sample
from .views import View


@dataclass(slots=True)
class _Later:
    """A sample whose turn has not come, and its outputs where they are held back."""

    sample: Sample
    outputs: list[Output] = field(default_factory=list)


class InOrder:
    """Shows the first sample that has not ended as it comes, and the later ones when it is their turn.

    does_show_draws: the view shows more of an output than its text, so that outputs are held back; otherwise the text
    that a sample has already is shown in one piece.
    A later sample that was interrupted before it gave anything is left out.
    """

    def __init__(self, view: View, *, does_show_draws: bool) -> None:
        self._view, self._does_show_draws = view, does_show_draws
        self._turn = 0
        self._has_begun = False
        self._later: dict[int, _Later] = {}

    def begin(self) -> None:
        """Start the first sample, before it gives anything."""
        self._view.begin(0)
        self._has_begun = True

    def take(self, sample: Sample, output: Output) -> Iterator[Sample]:
        """Show an output, or hold it back, and yield each sample whose turn ends with it. `sample` has taken it."""
        if sample.index != self._turn:
            later = self._later.setdefault(sample.index, _Later(sample))
            if self._does_show_draws:
                later.outputs.append(output)
            return
        self._show(sample, output)
        while sample.finish_reason is not None:
            if self._has_begun:
                self._view.end(sample)
                yield sample
            self._turn, self._has_begun = self._turn + 1, False
            if self._turn not in self._later:
                break
            later = self._later.pop(self._turn)
            sample = later.sample
            self._catch_up(later)

    def _catch_up(self, later: _Later) -> None:
        """Show what a sample has given before its turn."""
        whole = Output(request_id="", text=later.sample.text)
        for output in later.outputs if self._does_show_draws else [whole]:
            self._show(later.sample, output)

    def _show(self, sample: Sample, output: Output) -> None:
        if not self._has_begun:
            if _is_untouched(sample):
                return
            self._view.begin(sample.index)
            self._has_begun = True
        self._view.show(output)


def _is_untouched(sample: Sample) -> bool:
    """Whether a sample was interrupted before it gave anything."""
    return sample.finish_reason == "interrupted" and not sample.text and not sample.stats.completion_tokens
