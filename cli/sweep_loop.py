"""The loop of a sweep: every text of every combination goes through one engine, and is told as it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ..generation.params import SamplingParams
from ..generation.prompt import Prompt
from ..generation.trace import Output
from .interrupts import Interrupts
from .notes import Notes
from .sweep_texts import Board, SweptText


class Steps(Protocol):
    """The engine, as far as the loop knows it."""

    def add_request(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> str: ...

    def step(self) -> list[Output]: ...

    def has_unfinished_requests(self) -> bool: ...

    def abort_request(self, request_id: str) -> None: ...


class SweepView(Protocol):
    """Shows a sweep while it runs."""

    def show(self, board: Board) -> None:
        """Show how far the texts are, after a step."""

    def close(self) -> None:
        """Leave the screen in order, however the sweep ended."""


class Sweeping:
    """Generates the texts of a board. `report` is given each one as it ends, if there is anything of it."""

    def __init__(
        self,
        engine: Steps,
        board: Board,
        view: SweepView,
        notes: Notes,
        interrupts: Interrupts,
        *,
        report: Callable[[SweptText], None] = lambda text: None,
    ) -> None:
        self._engine, self._board, self._view = engine, board, view
        self._notes, self._interrupts, self._report = notes, interrupts, report

    def run(self) -> int:
        """Generate, and give the exit code: 0, 1 where a text failed, 130, 143 or 129 after a signal.

        A text that fails does not keep the others from coming. Raises what add_request raises, before the first step.
        """
        try:
            with self._interrupts.deferred():
                self._generate({self._add(text): text for text in self._board.in_turn})
        finally:
            self._notes.clear()
            self._view.close()
        self._say_errors()
        code = self._interrupts.exit_code
        if code is None:
            return int(any(text.error is not None for text in self._board.in_turn))
        self._notes.note("interrupted; the texts so far are kept." if code == 130 else "terminated.")
        return code

    def _add(self, text: SweptText) -> str:
        each = self._board.combinations[text.combination]
        return self._engine.add_request(each.prompt, replace(each.settings.params, seed=text.seed))

    def _generate(self, open_texts: dict[str, SweptText]) -> None:
        """Step until all texts have ended; at a signal they are aborted, and their last outputs taken."""
        is_aborted = False
        while self._engine.has_unfinished_requests():
            if self._interrupts.exit_code is not None and not is_aborted:
                is_aborted = True
                for request_id in open_texts:
                    self._engine.abort_request(request_id)
            for output in self._engine.step():
                self._take(output, open_texts)
            self._notes.clear()
            self._view.show(self._board)

    def _take(self, output: Output, open_texts: dict[str, SweptText]) -> None:
        text = open_texts[output.request_id]
        text.take(output)
        if output.finish_reason is not None:
            del open_texts[output.request_id]
            if text.is_there:
                self._report(text)

    def _say_errors(self) -> None:
        """Say once what went wrong, and for how many texts."""
        failed: dict[str, list[SweptText]] = {}
        for text in self._board.in_turn:
            if text.error is not None:
                failed.setdefault(str(text.error), []).append(text)
        for message, texts in failed.items():
            where = f"seed {texts[0].seed} of combination {self._board.combinations[texts[0].combination].name}"
            others = f", and {len(texts) - 1:,} more" if len(texts) > 1 else ""
            self._notes.warn(f"{where}{others}: {message}")
