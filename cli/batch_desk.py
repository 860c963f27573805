"""One engine that several threads give lines to at the same time, so that it stays full from parcel to parcel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from .batch_encoding import LineEncoder
from .batch_in_hand import InHand, Steps
from .batch_input import Line
from .batch_order import Record


@dataclass(slots=True)
class _Tray:
    """The records of one caller's lines, by their places; whole when there are as many as lines."""

    num_lines: int
    records: dict[int, Record] = field(default_factory=dict)


class Desk:
    """Answers lines. A caller's lines run together with those of all others; it waits for its own only.

    One thread alone touches the engine. Each waiting caller asks it for one step after another, and a step gives every
    record to the caller whose line it is. An error of the engine's is raised in the caller whose step met it.
    """

    def __init__(self, engine: Steps, encoder: LineEncoder, run: Mapping[str, Any]) -> None:
        self._in_hand: InHand[tuple[_Tray, int]] = InHand(engine, encoder, run)
        self._thread = ThreadPoolExecutor(1, "engine")

    def answer(self, lines: Sequence[Line]) -> list[Record]:
        """Give the records of lines, in their order."""
        tray = _Tray(len(lines))
        self._thread.submit(self._begin, lines, tray).result()
        while len(tray.records) < tray.num_lines:
            self._thread.submit(self._step).result()
        return [tray.records[place] for place in range(tray.num_lines)]

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _begin(self, lines: Sequence[Line], tray: _Tray) -> None:
        for place, line in enumerate(lines):
            record = self._in_hand.begin(line, (tray, place))
            if record is not None:
                tray.records[place] = record

    def _step(self) -> None:
        for (tray, place), record in self._in_hand.step():
            tray.records[place] = record
