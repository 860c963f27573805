"""Margins in words: the numbers to which a setting could be turned, as a person would say them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from ..generation.ranges import RANGES
from ..generation.trace import KNOBS, Interval

_DIGITS = range(4, 18)  # significant ones: as few as will do
_SMALLEST = -6  # the exponent from which a number is written out


class MarginWords:
    """Puts intervals of the settings that have margins into words: `0.71 to 0.83`, `12 or more`, `below 0.04`.

    A bound is rounded inwards, so that what is said is true, and written with more digits where that would leave the
    value in use outside. An end of the setting's own range is not said. settings: the values in use, by name.
    """

    def __init__(self, num_tokens: int, settings: Mapping[str, Any]) -> None:
        self._ranges = {name: Interval(low=RANGES[name].low, high=RANGES[name].high or 0) for name in KNOBS}
        self._ranges["top_k"] = Interval(low=1, high=num_tokens)
        self._used = {name: settings[name] for name in KNOBS if name in settings}
        self._used["top_k"] = self._used.get("top_k") or num_tokens  # 0 keeps every token

    def say(self, name: str, interval: Interval | None) -> str:
        """Give the numbers of an interval in words; None was not computed."""
        if interval is None:
            return "not computed"
        if interval.low > interval.high:
            return "none"
        most = self._ranges[name]
        is_low_free = interval.low <= most.low and (interval.is_low_closed or RANGES[name].is_low_open)
        is_high_free = interval.high > most.high or (interval.high == most.high and interval.is_high_closed)
        if is_low_free and is_high_free:
            return "any"
        low, high = self._bounds(name, interval)
        if is_high_free:
            return f"{low} or more" if interval.is_low_closed else f"above {low}"
        if is_low_free:
            return f"at most {high}" if interval.is_high_closed else f"below {high}"
        if low == high:
            return f"only {low}" if interval.is_low_closed and interval.is_high_closed else "none"
        first = low if interval.is_low_closed else f"above {low}"
        if interval.is_high_closed:
            return f"{first} to {high}"
        return f"{first} to below {high}" if interval.is_low_closed else f"{first}, below {high}"

    def _bounds(self, name: str, interval: Interval) -> tuple[str, str]:
        """Write both bounds."""
        if RANGES[name].kind is int:
            return f"{interval.low:.0f}", f"{interval.high:.0f}"
        used = self._used.get(name)
        for digits in _DIGITS:
            low = _rounded(interval.low, digits, ROUND_CEILING)
            high = _rounded(interval.high, digits, ROUND_FLOOR)
            said = Interval(
                low=float(low),
                high=float(high),
                is_low_closed=interval.is_low_closed,
                is_high_closed=interval.is_high_closed,
            )
            is_kept = used is None or used not in interval or used in said
            if is_kept and (low < high or interval.low == interval.high):
                break
        return _written(low), _written(high)


def _rounded(number: float, digits: int, rounding: str) -> Decimal:
    exact = Decimal(repr(float(number)))  # the shortest that is this number
    if not exact:
        return Decimal(0)
    return exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding).normalize()


def _written(number: Decimal) -> str:
    return f"{number:f}" if not number or number.adjusted() >= _SMALLEST else f"{number:E}".lower()
