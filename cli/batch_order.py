"""In which order records are written: as they finish, or as their lines were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

Record = dict[str, Any]


class Order(Protocol):
    """Takes records as they finish, and gives those whose turn it is."""

    def has_room(self) -> bool:
        """Whether another line may be begun."""

    def begin(self) -> int:
        """Give the place of a line that is begun."""

    def finish(self, place: int, record: Record) -> Iterator[Record]:
        """Take the record of a place; give the records whose turn it is now."""

    def rest(self) -> Iterator[Record]:
        """Give what was held back, where no more will come."""


class AsFinished:
    """Each record at once."""

    def has_room(self) -> bool:
        """Whether another line may be begun."""
        return True

    def begin(self) -> int:
        """Give the place of a line that is begun; here they are all the same."""
        return 0

    def finish(self, place: int, record: Record) -> Iterator[Record]:
        """Give the record."""
        yield record

    def rest(self) -> Iterator[Record]:
        """Give nothing: nothing was held back."""
        yield from ()


class AsRead:
    """In the order of the lines. What is done before its turn waits, at most `ahead` places from the oldest."""

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead
        self._held: dict[int, Record] = {}
        self._next = self._begun = 0

    def has_room(self) -> bool:
        """Whether another line may be begun."""
        return self._begun - self._next < self._ahead

    def begin(self) -> int:
        """Give the place of a line that is begun."""
        self._begun += 1
        return self._begun - 1

    def finish(self, place: int, record: Record) -> Iterator[Record]:
        """Take the record of a place; give the records whose turn it is now."""
        self._held[place] = record
        while self._next in self._held:
            record = self._held.pop(self._next)
            self._next += 1
            yield record

    def rest(self) -> Iterator[Record]:
        """Give what was held back, in order."""
        yield from (record for _, record in sorted(self._held.items()))
        self._held.clear()
