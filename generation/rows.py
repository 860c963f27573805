"""The logits before tokens that are given, in blocks: never length × vocabulary of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

import torch
from torch import Tensor

from .cache import rewind
from .device import memory_translated
from .errors import NumberError
from .model import Model
from .runner import Runner

CHUNK = 1024  # tokens of a text that a pass reads: bounds the memory of a long one
BLOCK = 2**25  # logits held at once: 128 MiB in float32
_EXACT_ROWS = 32  # in float64 at a time


class Rows:
    """The logits before tokens that are given. What two sequences of ids have in common at their start is read once."""

    def __init__(self, model: Model, *, limit: int | None = None) -> None:
        self._runner = Runner(model.network)
        self._device = model.device
        self._size = max(1, min(CHUNK, BLOCK // max(model.vocab_size, 1)))  # rows in a block
        self._slot = self._runner.new_slot(limit)
        self._held: list[int] = []  # what the slot holds, where it takes parts

    def before(self, ids: Sequence[int], first: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the logits before each id from `first` (1 or more) on: a place among the ids, and `(rows, vocab)`."""
        read = self._read_on if self._runner.takes_parts(self._slot) else self._read_anew
        with memory_translated("scoring a text", self._device):
            for at, rows in read(ids[:-1], first - 1):  # nothing is read after the last
                yield at + 1, rows.detach().to("cpu", torch.float32)

    def _read_on(self, ids: Sequence[int], first: int) -> Iterator[tuple[int, Tensor]]:
        """Go on from what the slot holds."""
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self._held, ids[:first], strict=False))
        start = sum(1 for _ in same)
        rewind(self._slot, start)
        for at, end in _parts(start, first, CHUNK):
            self._runner.rows(ids[at:end], at, self._slot, 1)
        for at, end in _parts(first, len(ids), self._size):
            rows = self._runner.rows(ids[at:end], at, self._slot, end - at)
            self._held = list(ids[:end])
            yield at, rows

    def _read_anew(self, ids: Sequence[int], first: int) -> Iterator[tuple[int, Tensor]]:
        """Read all from the beginning for each block: a state that takes no parts, or no cache."""
        for at, end in _parts(first, len(ids), self._size):
            yield at, self._runner.rows(ids[:end], 0, self._runner.new_slot(end), end - at)


def exact_parts(rows: Tensor) -> Iterator[Tensor]:
    """Give rows in float64, a few at a time."""
    for at, end in _parts(0, len(rows), _EXACT_ROWS):
        yield rows[at:end].double()


def check_numbers(rows: Tensor, place: int) -> None:
    """Raise NumberError for rows that hold NaN or nothing but −inf. A maximum is NaN if any number is."""
    is_good = rows.amax(-1).isfinite()
    if not bool(is_good.all()):
        bad = place + int((~is_good).nonzero()[0])
        raise NumberError.of_logits(f"before token {bad + 1}")


def _parts(start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Part a range into pieces of at most `size`."""
    return [(at, min(at + size, end)) for at in range(start, end, size)]
