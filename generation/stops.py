"""Stop strings: text goes in piece by piece, what is safe to show comes out."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Ends a text at the first of several literal strings, and shows no part of that string.

    The stop that ends earliest wins; of several that end together, the first in the list. Only a suffix that could
    still become a stop is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.matched: str | None = None  # the stop that ended the text
        self._stops = tuple(stops)
        self._matchers = [_Matcher(stop) for stop in stops]
        self._longest = max(map(len, stops), default=0)
        self._held = ""

    def push(self, text: str) -> str:
        """Return what this text made safe to show: nothing from the stop string on."""
        if self.matched is not None:
            return ""
        for place, char in enumerate(text if self._matchers else "", start=1):
            finished = [matcher.stop for matcher in self._matchers if matcher.advance(char)]
            if finished:
                self.matched = finished[0]
                before, self._held = self._held + text[:place], ""
                return before[: len(before) - len(self.matched)]
        text = self._held + text
        safe = len(text) - max((matcher.length for matcher in self._matchers), default=0)
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """Return the text that was held back, as no stop can come any more."""
        held, self._held = self._held, ""
        return held

    def would_end_at(self, text: str) -> bool:
        """Whether a stop string ends exactly where `text` ends, if `text` came next."""
        if self.matched is not None or not text:
            return False
        return (self._held + text[-self._longest :]).endswith(self._stops)


class _Matcher:
    """How much of one stop string the text ends with (Knuth, Morris and Pratt 1977)."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = 0  # the longest beginning of the stop that the text ends with
        self._shorter = _borders(stop)

    def advance(self, char: str) -> bool:
        """Take in one character; True when it completes the stop."""
        while self.length and self.stop[self.length] != char:
            self.length = self._shorter[self.length]
        if self.stop[self.length] == char:
            self.length += 1
        return self.length == len(self.stop)


def _borders(stop: str) -> list[int]:
    """For each length of a beginning of `stop`: the longest shorter beginning that it ends with."""
    borders = [0, 0]
    for char in stop[1:]:
        length = borders[-1]
        while length and stop[length] != char:
            length = borders[length]
        borders.append(length + (stop[length] == char))
    return borders
