"""What is said about a run besides its text: the settings with -v, the statistics, and what loading does."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from ..generation.params import SamplingParams
from ..generation.progress import Progress, bytes_text
from ..generation.stats import RunStats, peak_memory_bytes
from .active import active_text
from .notes import Notes
from .samples import CHOSEN_SEED, Run, Sample
from .setting_words import written
from .terminal import is_terminal


class LoadProgress:
    """Passes the progress of a load on, on a screen from which the status line is gone."""

    def __init__(self, inner: Progress, notes: Notes) -> None:
        self._inner, self._notes = inner, notes

    def note(self, text: str) -> None:
        """Pass a note on."""
        self._notes.clear()
        self._inner.note(text)

    def start(self, label: str, total: int | None) -> None:
        """Pass the start of a phase on."""
        self._notes.clear()
        self._inner.start(label, total)

    def advance(self, amount: int) -> None:
        """Pass a count on."""
        self._inner.advance(amount)

    def finish(self) -> None:
        """Pass the end of a phase on."""
        self._inner.finish()


class Report:
    """Says how a run is set and how it went, where that is wanted."""

    def __init__(
        self, run: Run, notes: Notes, *, is_verbose: bool, is_quiet: bool, inspected: SamplingParams | None = None
    ) -> None:
        self._run, self._notes, self._is_verbose = run, notes, is_verbose
        self._inspected = None if is_quiet else inspected
        self._has_statistics = is_verbose or (is_terminal(sys.stderr) and not is_quiet)
        self._endings: list[tuple[int, str]] = []  # of the samples: seed and finish reason

    def start(self, seed: int) -> None:
        """Show every setting with its origin with -v, and what shapes the tables before they come."""
        if self._is_verbose:
            self._notes.plain(settings_text(self._run, seed))
        elif self._inspected is not None:
            self._notes.plain(active_text(self._inspected, seed))

    def end(self, sample: Sample) -> None:
        """Show the statistics of a sample, and what another engine's order came to where no table said so.

        Of several samples only -v tells each one's; `total` has one line for all.
        """
        self._endings.append((sample.seed, str(sample.finish_reason)))
        if self._run.settings["order"].value != "minigen" and self._inspected is None:
            self._notes.note(order_note(sample))
        if self._has_statistics and (self._is_verbose or self._run.num_samples == 1):
            self._notes.plain(statistics_line(sample, self._run.device))

    def total(self, stats: RunStats) -> None:
        """Show the statistics of all samples together, where there are several. stats: their tokens, in one count."""
        if self._has_statistics and self._run.num_samples > 1:
            self._notes.plain(total_line(stats, self._endings, self._run.device))


def order_note(sample: Sample) -> str:
    """Say in how many steps minigen's own order would have left other tokens."""
    return (
        f"with minigen's order {sample.num_reordered} of {sample.stats.completion_tokens} steps "
        "would have had other candidates."
    )


def graphs_note(failure: str) -> str:
    """Say why a GPU's steps were not, or not all, replayed as graphs."""
    return f"steps ran without CUDA graphs: {failure}."


def settings_text(run: Run, seed: int) -> str:
    """Give one line for each setting: its name, its value, its origin."""
    lines: Mapping[str, tuple[str, str]] = {
        "model": (run.model, ""),
        "preset": (run.preset, ""),
        "step": ("compiled" if run.is_compiled else "not compiled", ""),
        **{name: (written(choice.value), choice.origin) for name, choice in run.settings.items()},
    }
    if run.settings["seed"].value is None:
        lines = {**lines, "seed": (str(seed), CHOSEN_SEED)}
    name_width = max(len(name) for name in lines)
    value_width = min(max(len(value) for value, _ in lines.values()), 24)
    return "\n".join(
        f"{name:<{name_width}}  {value:<{value_width}}  {origin}".rstrip() for name, (value, origin) in lines.items()
    )


def statistics_line(sample: Sample, device: str) -> str:
    """Give a sample's numbers on one line."""
    speeds = [
        _speed("prefill", sample.prefill_tokens_per_second),
        _speed("decode", sample.stats.decode_tokens_per_second),
    ]
    return _joined([*_counts(sample.stats), *speeds, _peak(device), f"seed {sample.seed}", _ending(sample)])


def total_line(stats: RunStats, endings: Sequence[tuple[int, str]], device: str) -> str:
    """Give the numbers of several samples on one line.

    stats: the tokens of all, in one count; endings: the seed of each, and why it ended.
    """
    seconds = stats.total_seconds
    seeds = [f"seeds {endings[0][0]} to {endings[-1][0]}"] if endings else []
    reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(reason for _, reason in endings).items())
    speed = _speed("over all", stats.completion_tokens / seconds if seconds else None)
    return _joined([f"{len(endings)} samples", *_counts(stats), speed, _peak(device), *seeds, reasons or None])


def _counts(stats: RunStats) -> list[str | None]:
    first = stats.first_token_seconds
    return [
        f"{stats.prompt_tokens} prompt + {stats.completion_tokens} new tokens",
        f"first token {first:.2f} s" if first is not None else None,
    ]


def _peak(device: str) -> str | None:
    peak = peak_memory_bytes(device)
    return None if peak is None else f"peak {bytes_text(peak)}"


def _joined(parts: Sequence[str | None]) -> str:
    return " · ".join(part for part in parts if part is not None)


def _ending(sample: Sample) -> str:
    """Say why the text ends where it ends."""
    if sample.finish_reason == "stop":
        return f"stop: {sample.stop!r}" if isinstance(sample.stop, str) else "stop: end of text"
    reasons = {"length": "length: max_new_tokens reached", "context": "context: the window is full"}
    return reasons.get(str(sample.finish_reason), str(sample.finish_reason))


def _speed(name: str, tokens_per_second: float | None) -> str | None:
    return None if tokens_per_second is None else f"{name} {tokens_per_second:.1f} tok/s"
